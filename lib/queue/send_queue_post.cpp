#include "send_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

// This file posts requests: it checks them, acquires their memory, gives them slots, and makes
// their work requests.

namespace cordma {

namespace {

bool is_long(const wr_summary& request) noexcept {
  return !request.local.empty() && request.local[0].size_bytes() > doorbell_batch::short_bytes_max;
}

/// The library's own bytes, which are in no registered memory.
bool is_unregistered(const const_local_mr_slice& slice) noexcept {
  return !slice.is_held() && slice.lkey() == 0;
}

/// Returns false if the processor must not read the memory, as it does for inline data. Behind a
/// fence registered memory may have what a READ is still to bring.
bool can_go_inline(std::span<const const_local_mr_slice> slices, bool is_fenced) noexcept {
  if (is_fenced) [[unlikely]]
    return std::ranges::all_of(slices, is_unregistered);
  for (const const_local_mr_slice& slice : slices)
    if (slice.is_held() && slice.block()->is_device_only()) [[unlikely]]
      return false;
  return true;
}

/// Makes the outcome of a request that never reaches the device.
request_outcome refused(errc code, std::uint64_t value = 0, std::uint64_t limit = 0) noexcept {
  return {.code = code, .call = "post_send", .value = value, .limit = limit};
}

void set_destination(ibv_send_wr& wr, const detail::request_destination& to) noexcept {
  if (to.path != nullptr)
    wr.wr.ud = {.ah = to.path, .remote_qpn = to.number, .remote_qkey = to.qkey};
  else
    wr.qp_type.xrc.remote_srqn = to.number;
}

}  // namespace

request_outcome send_queue::check(const bind_request& bind) const noexcept {
  using verbs::access;
  // Only addresses of type-2 windows may begin at zero (IBTA o10-36.2.2).
  const bool is_type_1 = bind.window->type == IBV_MW_TYPE_1;
  const access grantable = access::remote_read | access::remote_write | access::remote_atomic |
                           (is_type_1 ? access::none : access::zero_based);
  if (bind.region->pd != cold_->pd || bind.window->pd != cold_->pd)
    return refused(errc::wrong_protection_domain);
  const std::span<const std::byte> bytes = bind.local[0].bytes();
  // A slice before the region gives an offset larger than any length.
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(bytes.data()) -
                                reinterpret_cast<std::uintptr_t>(bind.region->addr);
  const bool unbinds = is_type_1 && bytes.empty();
  if (!unbinds && (bytes.empty() || offset > bind.region->length ||
                   bytes.size() > bind.region->length - offset))
    return refused(errc::out_of_range);
  const bool writes =
      (bind.granted & (access::remote_write | access::remote_atomic)) != access::none;
  const access needed = access::mw_bind | (writes ? access::local_write : access::none);
  if (!allows(bind.region_access, needed) || !allows(grantable, bind.granted))
    return refused(errc::access_denied);
  return {};
}

[[gnu::noinline]] const char* send_queue::refusing_call(const wr_summary& request) const noexcept {
  // A peer that serves no READ or atomic would make the device hold the request back for ever.
  if ((request.is_read() || request.is_atomic()) && cold_->qp.rd_atomic_max() == 0)
    return "post_send";
  if (!detail::is_known(request.opcode)) return detail::vendor_opcode_call;
  if (request.is_atomic_write() && !cold_->qp.has_atomic_write()) return detail::atomic_write_call;
  return nullptr;
}

inline request_outcome send_queue::check(const wr_summary& request) const noexcept {
  if (keeps_receives_ && request.takes_receive())
    return {.code = errc::refused, .call = "message_stream"};
  if ((request.to != nullptr) != bool{has_destinations_ != 0})
    return {.code = errc::not_supported, .call = "post_send"};
  if (request.window != nullptr) return check(*request.window);
  // SENDs and WRITEs have the first two kinds and the first four opcodes: one branch tells them.
  static_assert(unsigned(request_kind::write) == 1 && unsigned{IBV_WR_SEND_WITH_IMM} == 3);
  if ((unsigned(request.kind) / 2 | unsigned{request.opcode} / 4) != 0) {
    if (const char* const call = refusing_call(request)) [[unlikely]]
      return {.code = errc::not_supported, .call = call};
  }
  std::size_t bytes = request.is_atomic() ? sizeof(std::uint64_t) : 0;
  std::size_t used = 0;
  for (const const_local_mr_slice& slice : request.local) {
    bytes += slice.size_bytes();
    used += slice.empty() ? 0 : 1;
  }
  if (used > 1) {
    const std::uint32_t used_max = request.is_read() ? cold_->read_sge_max : cold_->sge_max;
    if (used > used_max) return refused(errc::too_many_slices, used, used_max);
  }
  if (bytes > message_max_bytes_) return refused(errc::wrong_length, bytes, message_max_bytes_);
  if (request.remote == nullptr) return {};
  const remote_mr_slice& remote = *request.remote;
  if (request.is_atomic() && remote.size_bytes() != bytes)
    return refused(errc::wrong_length, remote.size_bytes(), bytes);
  if (request.is_atomic() && remote.address() % bytes != 0) return refused(errc::misaligned);
  if (bytes > remote.size_bytes()) return refused(errc::out_of_range, bytes, remote.size_bytes());
  return {};
}

inline request_outcome send_queue::check_lease(const wr_summary& request) const noexcept {
  if (request.remote == nullptr || request.remote->lease() == nullptr) return {};
  const lease_block& lease = *request.remote->lease();
  const bool writes = !request.is_read() && (!request.is_atomic() || request.is_atomic_write());
  const verbs::access wanted = writes                ? verbs::access::remote_write
                               : request.is_atomic() ? verbs::access::remote_atomic
                                                     : verbs::access::remote_read;
  const errc why = lease.refusal(request.remote->generation(), this, wanted);
  if (why != errc{}) return refused(why);
  // The block is read only now: after the lease has gone, it may belong to another thread.
  if (scheduler().is_past(lease.usable_until())) return refused(errc::lease_expired);
  return {};
}

inline request_outcome send_queue::check_and_acquire(const wr_summary& request) noexcept {
  const request_outcome why = check(request);
  return why.has_failed() ? why : acquire(request);
}

int send_queue::fill_atomic_write(const wr_summary& request, ibv_send_wr& wr,
                                  ibv_sge& sge) noexcept {
  std::uint64_t& word = cold_->atomic_values[index_of(tail_)];
  word = request.compare_or_add;
  wr.wr.rdma = {.remote_addr = request.remote->address(), .rkey = request.remote->rkey()};
  sge = {.addr = reinterpret_cast<std::uint64_t>(&word),
         .length = sizeof word,
         .lkey = cold_->atomic_mr->lkey()};
  has_own_calls_ = 1;
  return wr.num_sge = 1;
}

inline int send_queue::fill_wr(const wr_summary& request, ibv_send_wr& wr, ibv_sge* sges) noexcept {
  // Some devices read fields that an opcode does not use. Clearing the whole union would make g++
  // emit an instruction that is slow to start.
  wr.wr.atomic = {};
  wr.qp_type = {};
  wr.bind_mw = {};
  wr.num_sge = 0;
  wr.wr_id = wr_id_base_ | tail_;
  wr.opcode = request.opcode;
  wr.imm_data = request.immediate;
  wr.sg_list = sges;
  wr.send_flags = request.send_flags & ~unsigned{IBV_SEND_SIGNALED};
  if (request.to != nullptr) [[unlikely]]
    set_destination(wr, *request.to);
  if (request.window != nullptr) {
    const bind_request& bind = *request.window;
    has_own_calls_ |= bind.window->type == IBV_MW_TYPE_1 ? 1u : 0u;
    const std::span<const std::byte> bytes = bind.local[0].bytes();
    wr.bind_mw = {.mw = bind.window,
                  .rkey = bind.rkey,
                  .bind_info = {.mr = bind.region,
                                .addr = reinterpret_cast<std::uint64_t>(
                                    bytes.empty() ? bind.region->addr : bytes.data()),
                                .length = bytes.size(),
                                .mw_access_flags = unsigned(bind.granted)}};
    return 0;
  }
  if (request.is_atomic()) {
    if (request.is_atomic_write()) return fill_atomic_write(request, wr, *sges);
    wr.wr.atomic = {.remote_addr = request.remote->address(),
                    .compare_add = request.compare_or_add,
                    .swap = request.swap,
                    .rkey = request.remote->rkey()};
    *sges = {.addr = reinterpret_cast<std::uint64_t>(&cold_->atomic_values[index_of(tail_)]),
             .length = sizeof(std::uint64_t),
             .lkey = cold_->atomic_mr->lkey()};
    return wr.num_sge = 1;
  }
  std::size_t bytes = 0;
  for (const const_local_mr_slice& slice : request.local) {
    if (slice.empty()) continue;  // Some devices read a length of 0 as 2 GiB.
    sges[wr.num_sge++] = {.addr = reinterpret_cast<std::uint64_t>(slice.bytes().data()),
                          .length = std::uint32_t(slice.size_bytes()),
                          .lkey = slice.lkey()};
    bytes += slice.size_bytes();
  }
  if (bytes != 0 && bytes <= inline_max_ && !request.is_read() &&
      can_go_inline(request.local, (wr.send_flags & IBV_SEND_FENCE) != 0))
    wr.send_flags |= IBV_SEND_INLINE;
  if (request.remote != nullptr) {
    wr.wr.rdma.remote_addr = request.remote->address();
    wr.wr.rdma.rkey = request.remote->rkey();
  }
  return wr.num_sge;
}

inline unsigned send_queue::signal_flag(std::uint32_t sequence, bool is_asked_for) noexcept {
  // A long row of unsignaled requests would keep its slots: nothing could end them.
  if (!is_asked_for && sequence - last_signaled_ < unsignaled_max_) return 0;
  last_signaled_ = sequence;
  return IBV_SEND_SIGNALED;
}

inline void send_queue::give_slot(send_operation* owner, std::uint32_t index,
                                  const wr_summary& request) noexcept {
  slot& s = at(tail_++);
  s.owner = owner;
  s.index = std::uint16_t(index);
  s.kind = request.kind;
  if (request.remote != nullptr && request.remote->lease() != nullptr) {
    s.lease = request.remote->lease();
    s.lease->used();
  }
  for (const const_local_mr_slice& slice : request.local) {
    if (!slice.is_held()) continue;
    if (s.held == nullptr) {
      s.held = slice.block();
    } else {
      more_held_by(s)[s.more_held++] = slice.block();
    }
  }
}

inline void send_queue::fill(send_operation* owner, const wr_list& list,
                             bool ends_signaled) noexcept {
  const std::size_t count = list.requests.size();
  ibv_sge* sges = list.sges;
  for (std::size_t i = 0; i < count; ++i) {
    const wr_summary& request = list.requests[i];
    const bool is_last = i + 1 == count;
    ibv_send_wr& wr = list.wrs[i];
    sges += fill_wr(request, wr, sges);
    wr.next = is_last ? nullptr : &wr + 1;
    const bool asks = ends_signaled ? is_last : request.is_signaled();
    wr.send_flags |= signal_flag(tail_, asks);
    give_slot(owner, std::uint32_t(i), request);
  }
}

inline bool send_queue::batches(const wr_summary& request) const noexcept {
  return doorbells().is_worth_while() && request.kind <= request_kind::atomic &&
         request.local.size() <= 1 && doorbells().takes(*this, is_long(request));
}

inline void send_queue::begin(send_operation& o) noexcept {
  o.first_ = tail_;
  o.pending_ = o.count_;
  o.state_ = send_operation::state::in_flight;
}

inline bool send_queue::post_list(send_operation* owner, const wr_list& list,
                                  bool ends_signaled) noexcept {
  doorbells().passes(*this);
  if (owner != nullptr) begin(*owner);
  const std::uint32_t signaled_before = last_signaled_;
  fill(owner, list, ends_signaled);
  const auto count = std::uint32_t(list.requests.size());
  ibv_send_wr* bad = nullptr;
  if (const int rc = ring(list.wrs, &bad); rc != 0) [[unlikely]] {
    const request_outcome how = doorbell_failed({rc, bad, list.wrs, count, signaled_before});
    if (owner == nullptr) driver_.fail_one(wr_id_base_, how);
    return false;
  }
  std::uint32_t sequence = tail_ - count;
  for (const wr_summary& request : list.requests) {
    tally().posted(request.kind);
    probe_posted(request.kind, sequence++);
  }
  return true;
}

void send_queue::post_batched(send_operation& o, const wr_summary& request) noexcept {
  if (doorbells().is_empty()) doorbells().begin(*this, last_signaled_);
  begin(o);
  doorbell_batch::entry& e = doorbells().next();
  fill(&o, {{&request, 1}, &e.wr, &e.sge}, true);
  probe_posted(request.kind, tail_ - 1);
  doorbells().add(request.kind, request.takes_receive() || is_long(request));
  if (doorbells().is_complete()) ring_and_pump();
}

inline void send_queue::post_now(send_operation& o, const wr_list& list) noexcept {
  for (std::uint32_t i = 0; i < o.count_; ++i) {
    request_outcome why = check_lease(list.requests[i]);
    if (!why.has_failed()) [[likely]]
      continue;
    release(list.requests);
    why.index = i;
    return end_unposted(o, list.requests, why);
  }
  if (!o.is_handle_ && o.count_ == 1 && batches(list.requests[0]))
    return post_batched(o, list.requests[0]);
  post_list(&o, list, o.count_ > 1 || o.is_signaled_);  // A failure ends `o`.
}

void send_queue::admit(send_operation& o, const wr_list& list) noexcept {
  if (at_once_max_ == 0 && cold_->refusal.has_failed())
    return end_unposted(o, list.requests, cold_->refusal);
  if (o.count_ > 1) {
    if (o.count_ > batch_max())
      return end_unposted(o, list.requests, refused(errc::limit_exceeded, o.count_, batch_max()));
    if (!has_long_ring())  // A single request gets room when another ends.
      return end_unposted(o, list.requests, request_outcome::of_errno(ENOMEM, "post_send"));
  }
  for (std::uint32_t i = 0; i < o.count_; ++i) {
    request_outcome why = check_and_acquire(list.requests[i]);
    if (!why.has_failed()) [[likely]]
      continue;
    release(list.requests.first(i));
    why.index = i;
    return end_unposted(o, list.requests, why);
  }
  if (in_flight() + o.count_ <= at_once_max_ ||
      ((at_once_max_ != 0 || o.is_urgent_) && has_room(o))) [[likely]]
    return post_now(o, list);
  o.state_ = send_operation::state::queued;
  cold_->waiting.push_back(o);
  set_at_once_max();
  tally().stalled(o.count_);
}

void send_queue::post_waiting() noexcept {
  if (cold_->is_room_kept || cold_->refusal.has_failed()) return;
  while (!cold_->waiting.empty() && has_room(cold_->waiting.front())) {
    send_operation& next = cold_->waiting.pop_front();
    // An inline notification may have destroyed the operation.
    const bool is_own = next.is_queues_own_;
    next.list_requests(
        [](send_operation& o, const wr_list& list) noexcept { o.queue_->post_now(o, list); });
    if (is_own) end_own(next);
  }
  set_at_once_max();
}

bool send_queue::post_detached(const wr_list& list) noexcept {
  const std::size_t count = list.requests.size();
  if ((in_flight() != 0 || count > 1) && !has_long_ring()) {
    driver_.fail_one(wr_id_base_, request_outcome::of_errno(ENOMEM, "post_send"));
    return false;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const request_outcome why = acquire(list.requests[i]);
    if (!why.has_failed()) [[likely]]
      continue;
    release(list.requests.first(i));
    driver_.fail_one(wr_id_base_, why);
    return false;
  }
  return post_list(nullptr, list, false);
}

}  // namespace cordma
