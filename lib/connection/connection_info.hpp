#pragma once

#include "connection/handshake.hpp"

#include <string>
#include <string_view>

namespace cordma::detail {

/// Writes a hello as text: "cordma-" and hexadecimal digits, the last 8 of which are a checksum.
std::string info_text(const handshake::hello& of);
/// Reads what `info_text` wrote, with blanks around it.
/// \errors errc::bad_handshake: no such text, cut, or a digit that was changed.
///   errc::incompatible_peer: another version wrote it.
handshake::hello read_info(std::string_view text);

}  // namespace cordma::detail
