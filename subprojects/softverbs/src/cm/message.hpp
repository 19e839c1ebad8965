#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

// The messages between two processes about a connection. All integers are little-endian.

namespace softverbs::cm {

/// An address and a port of rdma_cm. IPv4 addresses are mapped; the IPv4 wildcard is
/// ::ffff:0.0.0.0.
struct endpoint {
  in6_addr address{};
  std::uint32_t scope = 0;  ///< sin6_scope_id; not sent to others
  std::uint16_t port = 0;   ///< in host order
  std::uint16_t reserved = 0;

  [[nodiscard]] bool operator==(const endpoint& other) const noexcept {
    return port == other.port && std::memcmp(&address, &other.address, sizeof address) == 0;
  }
};
static_assert(sizeof(endpoint) == 24);

enum class message_kind : std::uint8_t {
  request = 1,         ///< REQ, the first message of a connection
  reply,               ///< REP: the other side accepted
  ready,               ///< RTU: the requester's queue pair is ready
  reject,              ///< REJ, with `reason`
  disconnect_request,  ///< DREQ
  disconnect_reply,    ///< DREP
  sidr_request,        ///< SIDR_REQ, the first message of a datagram port's look-up
  sidr_reply,          ///< SIDR_REP, with `reason` as its status
};

/// One message, of any kind; fields that a kind does not use are zero.
struct message {
  static constexpr std::uint32_t magic_value = 0x6d63'7673;  // "svcm"
  static constexpr std::uint8_t version_value = 1;
  static constexpr std::size_t private_bytes_max = 256;

  std::uint32_t magic = magic_value;
  std::uint8_t version = version_value;
  message_kind kind{};
  std::uint8_t reserved0[2]{};
  std::uint16_t space = 0;   ///< rdma_ucm_port_space, in a request
  std::uint16_t reason = 0;  ///< reason of a reject (IBTA 12.6.7.2), or status of a sidr_reply
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;
  std::uint32_t qkey = 0;
  endpoint source;           ///< the requester's address and port, in a request
  endpoint destination;      ///< the name that a request wants
  std::uint8_t qp_type = 0;  ///< ibv_qp_type
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t flow_control = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t srq = 0;
  std::uint8_t path_mtu = 0;     ///< ibv_mtu
  std::uint8_t ack_timeout = 0;  ///< 4.096 us * 2^n
  std::uint8_t private_bytes = 0;
  std::uint8_t reserved1[2]{};
  std::uint32_t ece_vendor = 0;
  std::uint32_t ece_options = 0;
  std::uint8_t private_data[private_bytes_max]{};

  [[nodiscard]] bool is_request() const noexcept {
    return kind == message_kind::request || kind == message_kind::sidr_request;
  }
};
static_assert(sizeof(message) == 24 + 48 + 12 + 8 + 256);

}  // namespace softverbs::cm
