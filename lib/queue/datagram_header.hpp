#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace cordma::detail {

/// Length of the room for a GRH in front of each datagram (ibv_post_recv(3)).
inline constexpr std::size_t grh_bytes = 40;

/// The facts that the device reports of a datagram's sender: a part of the CQE, and the GRH.
struct datagram_header {
  std::uint32_t src_qpn = 0;
  std::uint16_t slid = 0;
  std::uint8_t service_level = 0;
  bool has_grh = false;
  std::array<std::byte, grh_bytes> grh{};
};

}  // namespace cordma::detail
