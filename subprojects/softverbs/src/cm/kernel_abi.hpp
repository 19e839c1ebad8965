#pragma once

// Must come before <linux/in6.h>, which leaves to libc what libc has defined.
#include <netinet/in.h>

#include <rdma/rdma_user_cm.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

// Definitions of the kernel's rdma_ucm, rdma_cm and ib_cm that <rdma/rdma_user_cm.h> lacks: events,
// sizes of private data, reasons, statuses and times. Programs see all of them.

namespace softverbs::cm {

/// rdma_cm_event_type of <rdma/rdma_cma.h>.
enum class event_kind : std::uint32_t {
  address_resolved = 0,
  address_error = 1,
  route_resolved = 2,
  connect_request = 4,
  connect_response = 5,
  unreachable = 7,
  rejected = 8,
  established = 9,
  disconnected = 10,
  multicast_join = 12,
  timewait_exit = 15,
  user = 18,      ///< the program wrote it
  internal = 19,  ///< librdmacm wrote it
};

// Additions of later kernels, of which the oldest header knows nothing.

inline constexpr std::uint32_t query_ib_service = 3;  ///< an option of QUERY
/// The answer to query_ib_service without a record.
inline constexpr std::size_t service_records_head = 8;

struct resolve_ib_service_command {
  std::uint32_t id;
  std::uint32_t reserved;
  std::uint64_t service;
  std::uint8_t name[64];
  std::uint32_t flags;
  std::uint32_t reserved2;
};
static_assert(sizeof(resolve_ib_service_command) == 88);

struct write_event_command {
  std::uint32_t id;
  std::uint32_t reserved;
  std::uint32_t event;
  std::uint32_t status;
  union {
    rdma_ucm_conn_param connection;
    rdma_ucm_ud_param datagram;
    std::uint64_t argument;
  };
};
static_assert(sizeof(write_event_command) == 320);

inline constexpr std::uint8_t only_port = 1;
inline constexpr std::uint16_t default_pkey = 0xffff;
inline constexpr std::uint8_t retries_max = 7;  ///< 7 RNR retries: for ever

/// AF_IB's socket address; libc has none.
struct sockaddr_ib {
  std::uint16_t family;
  std::uint16_t pkey;
  std::uint32_t flow_info;
  std::uint8_t address[16];
  std::uint64_t service;       ///< big-endian, as the mask
  std::uint64_t service_mask;  ///< the bits of `service` that count
  std::uint64_t scope;
};
static_assert(sizeof(sockaddr_ib) == 48);
inline constexpr int family_ib = 27;  // AF_IB

// The private data that a program may send. Its peer is told the largest size, whatever was sent.
inline constexpr std::size_t request_private_bytes = 92 - 36;  ///< rdma_cm's own header has 36
inline constexpr std::size_t reply_private_bytes = 196;
inline constexpr std::size_t reject_private_bytes = 148;
inline constexpr std::size_t sidr_request_private_bytes = 216 - 36;
inline constexpr std::size_t sidr_reply_private_bytes = 136;

/// Reasons of a reject (IBTA volume 1, 12.6.7.2).
enum class reject_reason : std::uint16_t {
  no_resources = 3,
  timeout = 4,
  invalid_service_id = 8,
  invalid_gid = 12,
  invalid_mtu = 26,
  consumer_defined = 28,
  vendor_option_not_supported = 35,
};

/// Statuses of a SIDR reply (IBTA volume 1, 12.11.2.1).
enum class sidr_status : std::uint16_t { success = 0, unsupported = 1, reject = 2 };

inline constexpr std::uint32_t default_qkey = 0x01234567;  ///< RDMA_UDP_QKEY
inline constexpr std::uint8_t default_hop_limit = 64;
inline constexpr std::uint8_t packet_life_time = 18;  ///< RoCE's: 4.096 us * 2^18
inline constexpr std::uint8_t life_time_max = 31;
inline constexpr std::uint8_t response_timeout = 20;  ///< rdma_cm's: 4.096 us * 2^20
inline constexpr int sends = 16;                      ///< sends of a message without an answer
/// How long a request looks for somebody who listens, and how often. The kernel's request takes
/// some time to leave; here it takes none, and programs count on their peer to listen by then.
inline constexpr std::chrono::milliseconds search_time{200};
inline constexpr std::chrono::milliseconds search_period{10};
inline constexpr int backlog_max = 1024;
/// Requests that wait while the backlog is full. Each has a descriptor.
inline constexpr int waiting_max = 64;
inline constexpr std::uint32_t identifiers_max = 1u << 16;  ///< librdmacm indexes as many

/// The kernel's milliseconds of 4.096 us * 2^n.
constexpr std::chrono::milliseconds milliseconds_of(std::uint8_t n) noexcept {
  return std::chrono::milliseconds{n > 8 ? 1 << (n - 8) : 1};
}

/// The local ACK timeout that covers a path's life time, both ways, and the peer's delay.
constexpr std::uint8_t ack_timeout_of(std::uint8_t peer_delay, std::uint8_t life_time) noexcept {
  int timeout = life_time + 1;
  if (timeout >= peer_delay)
    timeout += peer_delay >= timeout - 1 ? 1 : 0;
  else
    timeout = peer_delay + (timeout >= peer_delay - 1 ? 1 : 0);
  return static_cast<std::uint8_t>(timeout < life_time_max ? timeout : life_time_max);
}

}  // namespace softverbs::cm
