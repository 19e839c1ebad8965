#pragma once

#include "rpc/call_frame.hpp"

#include <array>

namespace cordma::call_protocol {

/// A header as a frame of its own.
inline std::array<std::byte, header_bytes> encode(const header& h) noexcept {
  std::array<std::byte, header_bytes> out;
  encode(h, out.data());
  return out;
}

}  // namespace cordma::call_protocol
