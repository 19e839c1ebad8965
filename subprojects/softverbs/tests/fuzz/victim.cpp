#include "fuzz/victim.hpp"

#include "fuzz/script.hpp"
#include "node/gid_table.hpp"
#include "object/context.hpp"
#include "object/soft_verbs.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace softverbs::fuzz {

namespace {

constexpr unsigned all_remote =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::uint32_t qkey = 0x1234;
constexpr std::uint32_t depth = 32;
constexpr std::uint64_t sent_id = ~std::uint64_t{0};
constexpr std::uint32_t window_at = 500;
constexpr std::uint32_t window_bytes = 300;

ibv_ah_attr path_to_self() {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.sgid_index = static_cast<std::uint8_t>(gid_count() - 1);
  attr.grh.dgid = gid_at(gid_count() - 1);
  return attr;
}

}  // namespace

victim::victim()
    : ctx_{open_context({})},
      local_node_{soft(ctx_).local_node},
      pd_{verb::alloc_pd(ctx_)},
      other_pd_{verb::alloc_pd(ctx_)},
      cq_{verb::create_cq(ctx_, 1 << 12, nullptr, nullptr, 0)} {
  const int events = soft(ctx_).async.fd();
  must(::fcntl(events, F_SETFL, ::fcntl(events, F_GETFL) | O_NONBLOCK) == 0, "quiet events");
  ibv_srq_init_attr shared{};
  shared.attr = {.max_wr = depth, .max_sge = 2, .srq_limit = 0};
  srq_ = verb::create_srq(pd_, &shared);
  ibv_ah_attr path = path_to_self();
  ah_ = verb::create_ah(pd_, &path);
  must(
      pd_ != nullptr && other_pd_ != nullptr && cq_ != nullptr && srq_ != nullptr && ah_ != nullptr,
      "the victim's objects");
  make_memory();
  for (std::size_t index = 0; index < qps; ++index) make_queue_pair(index);
  ibv_gid group;
  std::memset(&group, group_byte, sizeof group);
  must(verb::attach_mcast(qps_[ud], &group, 0) == 0, "a group");
}

ibv_mr* victim::register_zone(ibv_pd* pd, const arena::zone& zone, unsigned access) {
  ibv_mr* region =
      verb::reg_mr(pd, zone.at, zone.bytes, reinterpret_cast<std::uint64_t>(zone.at), access);
  must(region != nullptr, "a region");
  regions_.push_back(region);
  return region;
}

void victim::make_memory() {
  using enum arena::filled;
  constexpr std::size_t bytes = 2000;
  std::size_t count = 0;
  const auto add = [&](ibv_pd* pd, arena::filled with, bool writable, unsigned access) {
    const arena::zone zone = arena_.add(bytes, with, writable);
    ibv_mr* region = register_zone(pd, zone, access);
    keys_[count++] = {region->rkey, reinterpret_cast<std::uint64_t>(zone.at)};
    return region;
  };
  add(pd_, plain, true, IBV_ACCESS_LOCAL_WRITE | all_remote);
  add(pd_, plain, false, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  add(pd_, secret, true, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  add(pd_, secret, false, IBV_ACCESS_LOCAL_WRITE);
  add(other_pd_, secret, false, IBV_ACCESS_LOCAL_WRITE | all_remote);
  add(pd_, secret, false, IBV_ACCESS_LOCAL_WRITE | all_remote);
  verb::dereg_mr(regions_.back());
  regions_.pop_back();
  windowed_ = add(pd_, secret, false, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  arena_.make_writable(static_cast<std::byte*>(windowed_->addr) + window_at, window_bytes, plain);
  window_ = verb::alloc_mw(pd_, IBV_MW_TYPE_2);
  must(window_ != nullptr, "a window");
  keys_[count++] = {window_->rkey, reinterpret_cast<std::uint64_t>(windowed_->addr) + window_at};
  outbox_ = arena_.add(outbox_bytes, plain, true);
  outbox_region_ = register_zone(pd_, outbox_, IBV_ACCESS_LOCAL_WRITE);
  keys_[count++] = {outbox_region_->rkey, reinterpret_cast<std::uint64_t>(outbox_.at)};
  // Receive slots lie in one region, canaries between them.
  for (auto& of_one : inbox_)
    for (auto& slot : of_one) slot = arena_.add(slot_bytes, plain, true);
  const arena::zone& first = inbox_.front().front();
  const arena::zone& last = inbox_.back().back();
  inbox_region_ =
      register_zone(pd_, {first.at, static_cast<std::size_t>(last.at - first.at) + last.bytes},
                    IBV_ACCESS_LOCAL_WRITE);
  keys_[count++] = {inbox_region_->rkey, reinterpret_cast<std::uint64_t>(first.at)};
}

void victim::make_queue_pair(std::size_t index) {
  constexpr std::array types{IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq_;
  attr.srq = index == rc_shared ? srq_ : nullptr;
  attr.cap = {depth, depth, 2, 2, 64};
  attr.qp_type = types[index];
  qps_[index] = verb::create_qp(pd_, &attr);
  must(qps_[index] != nullptr, "a queue pair");
}

void victim::connect(std::uint16_t peer_slot) {
  peer_slot_ = peer_slot;
  for (std::size_t index = 0; index < qps; ++index) connect_one(index);
}

void victim::connect_one(std::size_t index) noexcept {
  ibv_qp* qp = qps_[index];
  const bool datagram = qp->qp_type == IBV_QPT_UD;
  const bool reliable = qp->qp_type == IBV_QPT_RC;
  std::size_t held = slots_each;
  if (index == rc_shared) {  // A reset forgets the receive of a message in progress.
    const std::lock_guard lock{at(index).slot->receive};
    const responder_state& state = at(index).responder;
    held = state.has_request ? state.request.wr_id % slots_each : slots_each;
  }
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  must(verb::modify_qp(qp, &attr, IBV_QP_STATE) == 0, "RESET");
  // CQEs of before the reset are still in the queue; requests without a CQE are forgotten.
  while (poll()) continue;
  if (index != rc_shared) posted_[index].fill(false);
  if (held != slots_each) posted_[index][held] = false;
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = qkey;
  attr.qp_access_flags = all_remote;
  must(verb::modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                           (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0,
       "INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_256;
  attr.dest_qp_num = peer_qpn(peer_slot_, index);
  attr.rq_psn = psn_mask - 1;  // Wraps soon.
  attr.ah_attr = path_to_self();
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  must(verb::modify_qp(
           qp, &attr,
           IBV_QP_STATE |
               (datagram ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
               (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)) == 0,
       "RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = psn_mask - 1;
  attr.timeout = 1;
  attr.retry_cnt = 2;
  attr.rnr_retry = 2;
  attr.max_rd_atomic = 4;
  const int error = verb::modify_qp(
      qp, &attr,
      IBV_QP_STATE | IBV_QP_SQ_PSN |
          (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                    : 0));
  // The engine may take a frame that was still on its way as soon as there is an RTR. That frame
  // may break the queue pair.
  must(error == 0 || at(index).state.load() == IBV_QPS_ERR, "RTS");
}

void victim::bind_window() noexcept {
  const std::uint32_t next = (window_->rkey & ~variant_mask) | ((window_->rkey + 1) & variant_mask);
  ibv_send_wr wr{};
  wr.wr_id = sent_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw.mw = window_;
  wr.bind_mw.rkey = next;
  wr.bind_mw.bind_info = {windowed_, reinterpret_cast<std::uint64_t>(windowed_->addr) + window_at,
                          window_bytes, all_remote};
  ibv_send_wr* bad = nullptr;
  if (verb::post_send(qps_[rc], &wr, &bad) == 0) window_->rkey = next;
}

void victim::post(std::size_t index, ibv_wr_opcode opcode, unsigned flags,
                  std::uint32_t bytes) noexcept {
  const bool atomic = opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  ibv_sge list{reinterpret_cast<std::uint64_t>(outbox_.at),
               atomic ? 8u : std::min(bytes, static_cast<std::uint32_t>(outbox_bytes)),
               outbox_region_->lkey};
  ibv_send_wr wr{};
  wr.wr_id = sent_id;
  wr.opcode = opcode;
  wr.send_flags = flags;
  wr.sg_list = &list;
  wr.num_sge = 1;
  if (index == ud) {
    wr.wr.ud = {ah_, peer_qpn(peer_slot_, ud), qkey};
  } else {
    wr.wr.rdma.remote_addr = 64;  // The fields of atomics begin alike.
    if (atomic)
      wr.wr.atomic.rkey = 1;
    else
      wr.wr.rdma.rkey = 1;
  }
  ibv_send_wr* bad = nullptr;
  (void)verb::post_send(qps_[index], &wr, &bad);
}

void victim::receive(std::size_t index, std::size_t slot) noexcept {
  const arena::zone& zone = inbox_[index][slot];
  // In two pieces, the first one odd.
  constexpr std::uint32_t first = 71;
  const auto address = reinterpret_cast<std::uint64_t>(zone.at);
  std::array<ibv_sge, 2> list{{{address, first, inbox_region_->lkey},
                               {address + first, slot_bytes - first, inbox_region_->lkey}}};
  ibv_recv_wr wr{index * slots_each + slot, nullptr, list.data(), static_cast<int>(list.size())};
  ibv_recv_wr* bad = nullptr;
  const int error = index == rc_shared ? verb::post_srq_recv(srq_, &wr, &bad)
                                       : verb::post_recv(qps_[index], &wr, &bad);
  must(error == 0, "a receive");
  posted_[index][slot] = true;
}

bool victim::poll() noexcept {
  std::array<ibv_wc, 16> done;
  const int count = verb::poll_cq(cq_, static_cast<int>(done.size()), done.data());
  must(count >= 0, "completions");
  for (int n = 0; n < count; ++n) {
    const ibv_wc& wc = done[static_cast<std::size_t>(n)];
    if (wc.wr_id == sent_id) continue;
    must(wc.wr_id < qps * slots_each, "a completion of a request that was posted");
    bool& posted = posted_[wc.wr_id / slots_each][wc.wr_id % slots_each];
    must(posted, "a receive completes once");
    posted = false;
    must(wc.status != IBV_WC_SUCCESS || wc.opcode != IBV_WC_RECV || wc.byte_len <= slot_bytes,
         "a message fits what was posted");
  }
  return count != 0;
}

void victim::take_events() noexcept {
  for (ibv_async_event event{}; soft(ctx_).async.pop(event) == 0;) {
    if (event.event_type == IBV_EVENT_CQ_ERR)
      ++event.element.cq->async_events_completed;
    else if (event.event_type != IBV_EVENT_SRQ_LIMIT_REACHED)
      ++event.element.qp->events_completed;
  }
}

void victim::recover() noexcept {
  arena_.check_writes();
  bool broken = false;
  for (std::size_t index = 0; index < qps; ++index) {
    const ibv_qp_state state = at(index).state.load();
    if (state == IBV_QPS_RTS) continue;
    connect_one(index);
    broken = true;
  }
  if (broken) take_events();
  for (std::size_t index = 0; index < qps; ++index)
    for (std::size_t slot = 0; slot < slots_each; ++slot)
      if (!posted_[index][slot]) receive(index, slot);
  const key_slot* opened = local_node_->keys().slot_of(window_->rkey);
  if (opened->key.load() == 0) bind_window();
  keys_[7].rkey = window_->rkey;
}

}  // namespace softverbs::fuzz
