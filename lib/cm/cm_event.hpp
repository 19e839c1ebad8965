#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cordma::cm {

/// Bytes of a program's own that rdma_cm carries for RDMA_PS_TCP on InfiniBand and RoCE
/// (rdma_connect(3), rdma_accept(3)). The peer receives the whole field, padded with zeros.
inline constexpr std::size_t request_bytes_max = 56;
inline constexpr std::size_t reply_bytes_max = 196;
inline constexpr std::size_t rejection_bytes_max = 148;

/// Parameters that one side of a connection asks for, or its limits (rdma_connect(3)).
struct parameters {
  std::uint8_t responder_resources = 1;  ///< READs and atomics of the peer served at once.
  std::uint8_t initiator_depth = 1;      ///< READs and atomics of this side in flight.
  std::uint8_t retry_count = 6;          ///< Retransmissions, 0 to 7. The connecting side decides.
  /// Retries of the *peer's* sends when this side has posted no receive: 0 to 7.
  std::uint8_t rnr_retry_count = 6;
};

/// The request, reply or refusal of a peer.
struct peer_message {
  std::uint32_t qpn = 0;
  /// The peer's parameters as they are seen from this side: `responder_resources` is what this side
  /// is asked to serve, `initiator_depth` what the peer serves.
  parameters offer{};
  std::array<std::byte, reply_bytes_max> bytes{};
  std::uint8_t size_bytes = 0;

  [[nodiscard]] std::span<const std::byte> data() const noexcept {
    return {bytes.data(), size_bytes};
  }
};

/// A queue pair that takes datagrams, or a multicast group, as rdma_cm tells it.
struct datagram_peer {
  ibv_ah_attr path{};
  std::uint32_t qpn = 0;
  std::uint32_t qkey = 0;
};

/// A copy of an `rdma_cm_event`, which is acknowledged already.
struct cm_event {
  rdma_cm_event_type kind{};
  int status = 0;
  peer_message message;
  datagram_peer datagrams;  ///< An identifier of RDMA_PS_UDP has this, and no `message`.
  /// The identifier of a CONNECT_REQUEST, which the receiver of the event owns; else null.
  rdma_cm_id* request = nullptr;

  /// Copies; `original` can be acknowledged afterwards.
  explicit cm_event(const rdma_cm_event& original) noexcept;
};

}  // namespace cordma::cm
