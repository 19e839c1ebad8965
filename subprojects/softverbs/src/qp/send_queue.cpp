#include "object/address_handle.hpp"
#include "object/protection_domain.hpp"
#include "qp/queue_pair.hpp"
#include "qp/send_builder.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>

namespace softverbs {

namespace {

/// The offset of a request's data in the WQE: behind the fields of the opcode.
constexpr std::size_t data_behind(ibv_wr_opcode opcode, ibv_qp_type type) {
  using remote = send_request::remote_memory;
  if (type == IBV_QPT_UD) return sizeof(send_request) + sizeof(send_request::destination);
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ: return sizeof(send_request) + offsetof(remote, operand);
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_ATOMIC_WRITE: return sizeof(send_request) + sizeof(remote);
    case IBV_WR_BIND_MW: return sizeof(send_request) + sizeof(send_request::window);
    default: return sizeof(send_request);
  }
}
constexpr std::size_t data_at_max = data_behind(IBV_WR_SEND, IBV_QPT_UD);

constexpr auto data_by_opcode = [] {
  std::array<std::uint8_t, IBV_WR_ATOMIC_WRITE + 1> all{};
  for (unsigned opcode = 0; opcode < all.size(); ++opcode)
    all[opcode] =
        static_cast<std::uint8_t>(data_behind(static_cast<ibv_wr_opcode>(opcode), IBV_QPT_RC));
  return all;
}();

std::uint8_t data_at(ibv_wr_opcode opcode, ibv_qp_type type) {
  return type == IBV_QPT_UD ? static_cast<std::uint8_t>(data_at_max) : data_by_opcode[opcode];
}

std::uint32_t lines_for(const ibv_qp_cap& cap) {
  constexpr std::size_t line = 64;
  const std::size_t bytes =
      data_at_max + std::max(cap.max_send_sge * sizeof(ibv_sge), std::size_t{cap.max_inline_data});
  return static_cast<std::uint32_t>((bytes + line - 1) / line);
}

}  // namespace

std::size_t send_wqes::bytes_for(const ibv_qp_cap& cap) noexcept {
  return std::size_t{std::bit_ceil(cap.max_send_wr)} * lines_for(cap) * sizeof(cache_line);
}

send_wqes::send_wqes(const ibv_qp_cap& cap) noexcept
    : capacity_{static_cast<std::uint16_t>(cap.max_send_wr)},
      mask_{static_cast<std::uint16_t>(std::bit_ceil(cap.max_send_wr) - 1)},
      inline_max_{static_cast<std::uint16_t>(cap.max_inline_data)},
      sges_max_{static_cast<std::uint8_t>(cap.max_send_sge)},
      wqe_lines_{static_cast<std::uint8_t>(lines_for(cap))} {}

namespace {

constexpr unsigned known_flags =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

constexpr unsigned bit(ibv_wr_opcode opcode) { return 1u << opcode; }
constexpr unsigned datagram_opcodes = bit(IBV_WR_SEND) | bit(IBV_WR_SEND_WITH_IMM);
constexpr unsigned inline_opcodes = datagram_opcodes | bit(IBV_WR_SEND_WITH_INV) |
                                    bit(IBV_WR_RDMA_WRITE) | bit(IBV_WR_RDMA_WRITE_WITH_IMM);
constexpr unsigned unreliable_opcodes =
    inline_opcodes | bit(IBV_WR_LOCAL_INV) | bit(IBV_WR_BIND_MW);
constexpr unsigned reliable_opcodes = unreliable_opcodes | bit(IBV_WR_RDMA_READ) |
                                      bit(IBV_WR_ATOMIC_CMP_AND_SWP) |
                                      bit(IBV_WR_ATOMIC_FETCH_AND_ADD) | bit(IBV_WR_ATOMIC_WRITE);

bool has(unsigned opcodes, ibv_wr_opcode opcode) {
  return static_cast<unsigned>(opcode) < 32 && (opcodes & bit(opcode)) != 0;
}

unsigned opcodes_of(ibv_qp_type type) {
  static constexpr auto by_type = [] {
    std::array<unsigned, IBV_QPT_XRC_RECV + 1> all{};  // A target of XRC sends nothing.
    all[IBV_QPT_RC] = all[IBV_QPT_XRC_SEND] = reliable_opcodes;
    all[IBV_QPT_UC] = unreliable_opcodes;
    all[IBV_QPT_UD] = datagram_opcodes;
    return all;
  }();
  return by_type[type];
}

/// The capped length of a message that is too long; execution refuses it.
std::uint32_t saturated(std::uint64_t bytes) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(bytes, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

bool accepts_sends(ibv_qp_state state) noexcept {
  return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE ||
         state == IBV_QPS_ERR;
}

int open_request(queue_pair& qp, ibv_wr_opcode opcode, std::uint64_t wr_id,
                 unsigned flags) noexcept {
  if (!accepts_sends(qp.state.load(std::memory_order_relaxed))) return EINVAL;
  if (!has(opcodes_of(qp.type()), opcode)) return EINVAL;
  if ((flags & ~known_flags) != 0) return EINVAL;
  if ((flags & IBV_SEND_INLINE) != 0 && !has(inline_opcodes, opcode)) return EINVAL;
  send_ring& ring = qp.sends;
  const std::uint64_t held = ring.built - qp.slot->released.load(std::memory_order_acquire);
  if (held >= qp.wqes.capacity()) return ENOMEM;
  // An empty queue restarts with the first WQE, which the cache may still have.
  if (held == 0) ring.first = ring.built;
  send_request& request = qp.request(ring.built++);
  request = {.wr_id = wr_id,
             .opcode = opcode,
             .flags = static_cast<std::uint8_t>(flags),
             .data_at = data_at(opcode, qp.type())};
  if (qp.type() == IBV_QPT_UD) request.datagram() = {};
  return 0;
}

int set_gather_list(queue_pair& qp, std::span<const ibv_sge> list) noexcept {
  if (list.size() > qp.wqes.sges_max()) return EINVAL;
  send_request& request = qp.request(qp.sends.built - 1);
  std::uint64_t length = 0;
  for (const ibv_sge& sge : list) length += sge.length;
  std::copy(list.begin(), list.end(), request.sges());
  request.sge_count = static_cast<std::uint8_t>(list.size());
  request.length = saturated(length);
  request.inlined = false;
  return 0;
}

int begin_inline(queue_pair& qp) noexcept {
  send_request& request = qp.request(qp.sends.built - 1);
  if (!has(inline_opcodes, request.opcode)) return EINVAL;
  request.inlined = true;
  request.sge_count = 0;
  request.length = 0;
  return 0;
}

int append_inline(queue_pair& qp, const void* bytes, std::size_t size) noexcept {
  send_request& request = qp.request(qp.sends.built - 1);
  if (size > qp.wqes.inline_max() - request.length) return EINVAL;
  if (size != 0) std::memcpy(request.data() + request.length, bytes, size);
  request.length += static_cast<std::uint32_t>(size);
  return 0;
}

void set_remote(queue_pair& qp, std::uint64_t address, std::uint32_t rkey) noexcept {
  send_request::remote_memory& remote = qp.request(qp.sends.built - 1).remote();
  remote.address = address;
  remote.rkey = rkey;
}

int set_datagram(queue_pair& qp, const ibv_ah* ah, std::uint32_t remote_qpn,
                 std::uint32_t remote_qkey) noexcept {
  if (qp.type() != IBV_QPT_UD) return EINVAL;  // Only datagrams have a destination.
  if (ah == nullptr) return EINVAL;
  const auto& address = *reinterpret_cast<const address_handle*>(ah);
  if (address.pd != qp.pd || remote_qpn > qpn_max) return EINVAL;
  qp.request(qp.sends.built - 1).datagram() = {.gid = address.gid,
                                               .source_gid = address.source_gid,
                                               .host = address.host,
                                               .qpn = remote_qpn,
                                               .qkey = remote_qkey,
                                               .class_and_flow = address.class_and_flow,
                                               .hop_limit = address.hop_limit};
  return 0;
}

void set_bind(queue_pair& qp, const ibv_mw& window, std::uint32_t rkey,
              const ibv_mw_bind_info& info) noexcept {
  qp.request(qp.sends.built - 1).bind() = {.pd = origin_of(window.pd),
                                           .old_rkey = window.rkey,
                                           .new_rkey = rkey,
                                           .region = info.mr != nullptr ? info.mr->lkey : 0,
                                           .type = window.type,
                                           .address = info.addr,
                                           .bytes = info.length,
                                           .access = info.mw_access_flags};
}

namespace {

/// Copies the fields of the work request that depend on the opcode.
int set_operation(queue_pair& qp, const ibv_send_wr& wr) noexcept {
  send_request& request = qp.request(qp.sends.built - 1);
  switch (wr.opcode) {
    case IBV_WR_SEND_WITH_IMM: request.immediate = wr.imm_data; break;
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_LOCAL_INV: request.immediate = wr.invalidate_rkey; break;
    case IBV_WR_BIND_MW: set_bind(qp, *wr.bind_mw.mw, wr.bind_mw.rkey, wr.bind_mw.bind_info); break;
    case IBV_WR_RDMA_WRITE_WITH_IMM: request.immediate = wr.imm_data; [[fallthrough]];
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_WRITE: set_remote(qp, wr.wr.rdma.remote_addr, wr.wr.rdma.rkey); break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      request.remote() = {wr.wr.atomic.remote_addr,
                          wr.wr.atomic.rkey,
                          {wr.wr.atomic.compare_add, wr.wr.atomic.swap}};
      break;
    default: break;
  }
  if (qp.type() < IBV_QPT_UD) return 0;
  if (qp.type() == IBV_QPT_UD)
    return set_datagram(qp, wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey);
  qp.queue_of(qp.sends.built - 1) = wr.qp_type.xrc.remote_srqn;
  return 0;
}

int set_data(queue_pair& qp, const ibv_send_wr& wr) noexcept {
  if (wr.num_sge < 0) return EINVAL;
  if (wr.opcode == IBV_WR_LOCAL_INV || wr.opcode == IBV_WR_BIND_MW) {
    // The list is ignored, but its length is checked, as on other devices.
    return static_cast<std::size_t>(wr.num_sge) > qp.wqes.sges_max() ? EINVAL : 0;
  }
  const std::span<const ibv_sge> list{wr.sg_list, static_cast<std::size_t>(wr.num_sge)};
  if ((wr.send_flags & IBV_SEND_INLINE) == 0) return set_gather_list(qp, list);
  // Inline bytes are gathered now; the list is still bounded by the capability of the QP.
  if (list.size() > qp.wqes.sges_max()) return EINVAL;
  if (int error = begin_inline(qp)) return error;
  for (const ibv_sge& sge : list)
    if (int error = append_inline(qp, reinterpret_cast<const void*>(sge.addr), sge.length))
      return error;
  return 0;
}

}  // namespace

int enqueue(queue_pair& qp, const ibv_send_wr& wr) noexcept {
  if (int error = open_request(qp, wr.opcode, wr.wr_id, wr.send_flags)) return error;
  int error = set_operation(qp, wr);
  if (error == 0) error = set_data(qp, wr);
  if (error == 0)
    qp.sends.posted = qp.sends.built;
  else
    qp.sends.built = qp.sends.posted;
  return error;
}

}  // namespace softverbs
