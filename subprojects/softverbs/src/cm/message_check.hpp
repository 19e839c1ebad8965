#pragma once

#include "cm/message.hpp"

namespace softverbs::cm {

/// Reason of a reject: nobody listens at the name (IBTA 12.6.7.2: invalid service id).
inline constexpr std::uint16_t reason_no_listener = 8;

/// True if a message of a peer may be shown to a user: its magic, version, kind, ranges, lengths
/// and, of a request, the endpoints.
[[nodiscard]] bool is_valid(const message& from_peer) noexcept;

}  // namespace softverbs::cm
