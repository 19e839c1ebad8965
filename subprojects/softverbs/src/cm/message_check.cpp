#include "cm/message_check.hpp"

#include "cm/names.hpp"
#include "link/ip_address.hpp"

#include <infiniband/verbs.h>
#include <rdma/rdma_user_cm.h>

#include <bit>

namespace softverbs::cm {

namespace {

static_assert(std::endian::native == std::endian::little,
              "messages carry little-endian fields as they are");

constexpr std::uint32_t number_max = 0xff'ffff;  ///< limit of QP numbers and PSNs
constexpr std::uint8_t retry_max = 7;
constexpr std::uint8_t timeout_max = 31;

/// The bytes of private data in IBTA's message of that kind; 0: no message is of that kind.
std::size_t private_bytes_of(message_kind kind) noexcept {
  switch (kind) {
    case message_kind::request: return 92;
    case message_kind::reply: return 196;
    case message_kind::ready: return 224;
    case message_kind::reject: return 148;
    case message_kind::disconnect_request: return 220;
    case message_kind::disconnect_reply: return 224;
    case message_kind::sidr_request: return 216;
    case message_kind::sidr_reply: return 136;
  }
  return 0;
}

bool is_host(const endpoint& one) noexcept {
  const in6_addr& address = one.address;
  const bool is_group =
      is_mapped(address) ? (address.s6_addr[12] & 0xf0) == 0xe0 : address.s6_addr[0] == 0xff;
  return one.port != 0 && !is_group && !is_wildcard(address);
}

bool is_space_of(message_kind kind, std::uint16_t space) noexcept {
  switch (space) {
    case RDMA_PS_TCP:
    case RDMA_PS_IB: return true;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB: return kind == message_kind::sidr_request;
    default: return false;
  }
}

}  // namespace

bool is_valid(const message& one) noexcept {
  const std::size_t private_bytes = private_bytes_of(one.kind);
  const bool is_known = one.magic == message::magic_value &&
                        one.version == message::version_value && private_bytes != 0 &&
                        one.private_bytes <= private_bytes;
  const bool is_in_range = one.qpn <= number_max && one.psn <= number_max &&
                           one.qp_type <= IBV_QPT_XRC_RECV && one.retry_count <= retry_max &&
                           one.rnr_retry_count <= retry_max && one.path_mtu <= IBV_MTU_4096 &&
                           one.ack_timeout <= timeout_max && one.flow_control <= 1 && one.srq <= 1;
  return is_known && is_in_range &&
         (!one.is_request() ||
          (is_space_of(one.kind, one.space) && is_host(one.source) && is_host(one.destination)));
}

}  // namespace softverbs::cm
