#include "send_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <utility>

namespace cordma {

send_queue::seldom_used::seldom_used(verbs::protection_domain& pd, verbs::queue_pair& its)
    : qp{its},
      depth_max{its.capabilities().send_wr_max},
      depth{depth_max},
      sge_max{its.capabilities().send_sge_max},  // At least 1: `verbs::queue_pair` sees to it.
      read_sge_max{pd.limits().sge_rd_max == 0 ? sge_max
                                               : std::min(sge_max, pd.limits().sge_rd_max)},
      more_held(places() * (sge_max - 1)),
      atomic_values(places()),
      atomic_mr{pd, atomic_values.data(), atomic_values.size() * sizeof(std::uint64_t),
                verbs::access::local_write} {}

send_queue::send_queue(completion_queue_driver& driver, held_memory& held,
                       verbs::protection_domain& pd, verbs::queue_pair& qp,
                       std::size_t message_max_bytes)
    : held_{held},
      native_{qp.native_handle()},
      driver_{driver},
      unsignaled_max_{unsignaled_max_of(qp.capabilities().send_wr_max)},
      message_max_bytes_{std::uint32_t(message_max_bytes)},
      inline_max_(qp.capabilities().inline_max & 0x7fff'ffffu),
      num_{qp.num()},
      seldom_{std::make_unique<seldom_used>(pd, qp)} {
  set_at_once_max();
}

send_queue::~send_queue() {
  CORDMA_ASSERT(in_flight() == 0, "send queue destroyed before its queue pair");
  CORDMA_ASSERT(seldom_->waiting.empty(), "send queue destroyed with requests that wait for room");
}

void send_queue::refuse(const request_outcome& how) noexcept {
  seldom_->refusal = how;
  set_at_once_max();
}

void send_queue::reserve(std::uint32_t slots) noexcept {
  CORDMA_ASSERT(in_flight() == 0 && slots < seldom_->depth_max && !seldom_->is_room_kept,
                "slots are reserved before they are used");
  seldom_->depth = seldom_->depth_max - slots;
  set_at_once_max();
  unsignaled_max_ = unsignaled_max_of(depth());
}

bool send_queue::has_room() const noexcept {
  return seldom_->waiting.empty() && in_flight() < depth();
}

bool send_queue::is_idle() const noexcept { return in_flight() == 0 && seldom_->waiting.empty(); }

errc send_queue::refusal_of(const bind_request& bind) const noexcept {
  using verbs::access;
  constexpr access grantable =
      access::remote_read | access::remote_write | access::remote_atomic | access::zero_based;
  if (bind.region->pd != native_->pd || bind.window->pd != native_->pd)
    return errc::wrong_protection_domain;
  const std::span<const std::byte> bytes = bind.local.slices[0].bytes();
  // Before the region: larger than any length.
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(bytes.data()) -
                                reinterpret_cast<std::uintptr_t>(bind.region->addr);
  if (bytes.empty() || offset > bind.region->length || bytes.size() > bind.region->length - offset)
    return errc::out_of_range;
  const bool writes =
      (bind.granted & (access::remote_write | access::remote_atomic)) != access::none;
  const access needed = access::mw_bind | (writes ? access::local_write : access::none);
  if (!allows(bind.region_access, needed) || !allows(grantable, bind.granted))
    return errc::access_denied;
  return {};
}

request_outcome send_queue::refused(errc code, std::uint64_t value,
                                    std::uint64_t limit) const noexcept {
  return {.code = code, .call = "post_send", .value = value, .limit = limit};
}

request_outcome send_queue::check(const wr_summary& request) const noexcept {
  if (keeps_receives_ && request.takes_receive())
    return {.code = errc::refused, .call = "message_stream"};
  if (request.window != nullptr) {
    const errc why = refusal_of(*request.window);
    return why == errc{} ? request_outcome{} : refused(why);
  }
  const bool is_one_sided_read = request.is_read() || request.is_atomic();
  // The peer serves none: the device would hold it back for ever.
  if (is_one_sided_read && seldom_->qp.rd_atomic_max() == 0) return refused(errc::not_supported);
  std::size_t bytes = request.is_atomic() ? sizeof(std::uint64_t) : 0;
  std::size_t used = 0;
  for (const const_local_mr_slice& slice : request.local) {
    bytes += slice.size_bytes();
    used += slice.empty() ? 0 : 1;
  }
  const std::uint32_t slices_max = request.is_read() ? seldom_->read_sge_max : seldom_->sge_max;
  if (used > slices_max) return refused(errc::too_many_slices, used, slices_max);
  if (bytes > message_max_bytes_) return refused(errc::wrong_length, bytes, message_max_bytes_);
  if (request.remote == nullptr) return {};
  const remote_mr_slice& remote = *request.remote;
  if (request.is_atomic() && remote.size_bytes() != bytes)
    return refused(errc::wrong_length, remote.size_bytes(), bytes);
  if (request.is_atomic() && remote.address() % bytes != 0) return refused(errc::misaligned);
  if (bytes > remote.size_bytes()) return refused(errc::out_of_range, bytes, remote.size_bytes());
  return {};
}

errc send_queue::acquire(const wr_summary& request) noexcept {
  const verbs::access needed = request.is_read() ? verbs::access::local_write : verbs::access::none;
  for (std::size_t i = 0; i < request.local.size(); ++i) {
    const const_local_mr_slice& slice = request.local[i];
    if (!slice.is_held()) continue;
    memory_block& block = *slice.block();
    const bool is_acquired = held_.try_hold(block, slice.generation());
    if (is_acquired && verbs::allows(block.access(), needed)) [[likely]]
      continue;
    release(request.local.first(is_acquired ? i + 1 : i));
    if (is_acquired) return errc::access_denied;
    return block.generation() != slice.generation() ? errc::stale_slice
                                                    : errc::wrong_protection_domain;
  }
  return {};
}

void send_queue::release(std::span<const const_local_mr_slice> slices) noexcept {
  for (const const_local_mr_slice& slice : slices)
    if (slice.is_held()) held_.let_go(*slice.block());
}

void send_queue::admit(send_operation& o, const wr_list& list) noexcept {
  if (seldom_->refusal) return end_unposted(o, list.requests, *seldom_->refusal);
  if (o.count_ > batch_max())
    return end_unposted(o, list.requests, refused(errc::limit_exceeded, o.count_, batch_max()));
  if (o.count_ > 1 && !has_long_ring()) {  // For one an end makes room.
    const std::error_code none_left = std::make_error_code(std::errc::not_enough_memory);
    return end_unposted(o, list.requests, {.code = none_left, .call = "post_send"});
  }
  for (std::uint32_t i = 0; i < o.count_; ++i) {
    request_outcome why = check(list.requests[i]);
    if (!why.code)
      if (const errc code = acquire(list.requests[i]); code != errc{}) why = refused(code);
    if (!why.code) [[likely]]
      continue;
    why.index = i;
    release(list.requests.first(i));
    return end_unposted(o, list.requests, why);
  }
  const bool is_next = seldom_->waiting.empty() && !seldom_->is_room_kept;
  if ((is_next || o.is_urgent_) && has_room(o)) return post_now(o, list);
  o.state_ = send_operation::state::queued;
  seldom_->waiting.push_back(o);
  set_at_once_max();
  tally().stalled(o.count_);
}

void send_queue::end_unposted(send_operation& o, std::span<const wr_summary> requests,
                              const request_outcome& how) noexcept {
  for (const wr_summary& request : requests) tally().refused(request.kind);
  o.end(how);
}

bool send_queue::has_room(const send_operation& o) noexcept {
  const std::uint32_t needed = in_flight() + o.count_;
  return needed <= (o.is_urgent_ ? seldom_->depth_max : seldom_->depth) &&
         (needed == 1 || has_long_ring());
}

bool send_queue::has_long_ring() noexcept {
  if (seldom_->ring != nullptr) return true;
  seldom_->ring.reset(new (std::nothrow) slot[seldom_->places()]);
  if (seldom_->ring == nullptr) return false;
  seldom_->ring[0] = std::exchange(only_slot_, {});
  slots_ = seldom_->ring.get();
  mask_ = std::uint32_t(seldom_->places() - 1);
  origin_ = head_;
  set_at_once_max();
  return true;
}

void send_queue::post_waiting() noexcept {
  if (seldom_->is_room_kept || seldom_->refusal) return;
  while (!seldom_->waiting.empty() && has_room(seldom_->waiting.front())) {
    send_operation& next = seldom_->waiting.pop_front();
    const bool is_own = next.is_queues_own_;  // Who is told inline may have destroyed it.
    next.list_requests(&post_admitted);
    if (is_own) end_own(next);
  }
  set_at_once_max();
}

void send_queue::end_own(send_operation& o) noexcept {
  if (o.state_ == send_operation::state::in_flight) o.detach();
  delete &o;
}

void send_queue::withdraw(send_operation& o) noexcept {
  o.list_hook<send_operation>::unlink();
  o.list_requests([](send_operation& self, const wr_list& list) noexcept {
    self.queue_->release(list.requests);
  });
  set_at_once_max();
  pump();  // It may have been the one that asked for too much room.
}

errc send_queue::lease_refusal(const wr_summary& request) const noexcept {
  if (request.remote == nullptr || request.remote->lease() == nullptr) return {};
  const lease_block& lease = *request.remote->lease();
  const verbs::access wanted = request.is_atomic() ? verbs::access::remote_atomic
                               : request.is_read() ? verbs::access::remote_read
                                                   : verbs::access::remote_write;
  const errc why = lease.refusal(request.remote->generation(), this, wanted);
  // Only now: of a lease that is gone the block may be another thread's.
  return why == errc{} && home().is_past(lease.usable_until()) ? errc::lease_expired : why;
}

void send_queue::post_admitted(send_operation& o, const wr_list& list) noexcept {
  o.queue_->post_now(o, list);
}

void send_queue::post_now(send_operation& o, const wr_list& list) noexcept {
  for (std::uint32_t i = 0; i < o.count_; ++i) {
    const errc why = lease_refusal(list.requests[i]);
    if (why == errc{}) [[likely]]
      continue;
    release(list.requests);
    request_outcome how = refused(why);
    how.index = i;
    return end_unposted(o, list.requests, how);
  }
  if (!o.is_handle_ && o.count_ == 1 && batches(list.requests[0]))
    return post_batched(o, list.requests[0]);
  doorbells().passes(*this);
  begin(o);
  const std::uint32_t signaled_before = last_signaled_;
  fill(&o, list, o.count_ > 1 || o.is_signaled_);
  ibv_send_wr* bad = nullptr;
  if (const int rc = ring(list, bad); rc != 0) [[unlikely]]
    post_failed(o, {signaled_before, rc, bad}, list.wrs[0]);
}

void send_queue::begin(send_operation& o) noexcept {
  o.first_ = tail_;
  o.pending_ = o.count_;
  o.state_ = send_operation::state::in_flight;
}

void send_queue::fill(send_operation* owner, const wr_list& list, bool ends_signaled) noexcept {
  const std::size_t count = list.requests.size();
  ibv_sge* sges = list.sges;
  for (std::size_t i = 0; i < count; ++i) {
    const wr_summary& request = list.requests[i];
    const bool is_last = i + 1 == count;
    ibv_send_wr& wr = list.wrs[i];
    sges += fill_wr(request, wr, sges);
    wr.next = is_last ? nullptr : &wr + 1;
    const bool asks = ends_signaled ? is_last : request.is_signaled();
    wr.send_flags |= entry_flag(tail_, asks);
    give_slot(owner, std::uint32_t(i), request);
  }
}

int send_queue::fill_wr(const wr_summary& request, ibv_send_wr& wr, ibv_sge* sges) noexcept {
  wr = {};  // Some devices look at what an opcode does not use.
  wr.wr_id = wr_id_base_ | tail_;
  wr.opcode = request.opcode;
  wr.imm_data = request.immediate;
  wr.sg_list = sges;
  wr.send_flags = request.send_flags & ~unsigned{IBV_SEND_SIGNALED};
  if (request.window != nullptr) {
    const bind_request& bind = *request.window;
    const std::span<const std::byte> bytes = bind.local.slices[0].bytes();
    wr.bind_mw = {.mw = bind.window,
                  .rkey = bind.rkey,
                  .bind_info = {.mr = bind.region,
                                .addr = reinterpret_cast<std::uint64_t>(bytes.data()),
                                .length = bytes.size(),
                                .mw_access_flags = unsigned(bind.granted)}};
    return 0;
  }
  if (request.is_atomic()) {
    wr.wr.atomic = {.remote_addr = request.remote->address(),
                    .compare_add = request.compare_or_add,
                    .swap = request.swap,
                    .rkey = request.remote->rkey()};
    *sges = {.addr = reinterpret_cast<std::uint64_t>(&seldom_->atomic_values[index_of(tail_)]),
             .length = sizeof(std::uint64_t),
             .lkey = seldom_->atomic_mr.lkey()};
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
  if (bytes != 0 && bytes <= inline_max_ && !request.is_read()) wr.send_flags |= IBV_SEND_INLINE;
  if (request.remote != nullptr) {
    wr.wr.rdma.remote_addr = request.remote->address();
    wr.wr.rdma.rkey = request.remote->rkey();
  }
  return wr.num_sge;
}

unsigned send_queue::entry_flag(std::uint32_t sequence, bool is_asked_for) noexcept {
  // A long run without an entry would keep its slots: nothing could end them.
  if (!is_asked_for && sequence - last_signaled_ < unsignaled_max_) return 0;
  last_signaled_ = sequence;
  return IBV_SEND_SIGNALED;
}

void send_queue::give_slot(send_operation* owner, std::uint32_t index,
                           const wr_summary& request) noexcept {
  slot& s = at(tail_++);
  s.owner = owner;
  s.state.index = std::uint16_t(index);
  s.state.kind = request.kind;
  s.state.special = request.is_atomic() ? slot::atomic : 0;
  if (request.remote != nullptr && request.remote->lease() != nullptr) {
    s.lease = request.remote->lease();
    s.lease->used();
  }
  for (const const_local_mr_slice& slice : request.local) {
    if (!slice.is_held()) continue;
    if (s.held == nullptr) {
      s.held = slice.block();
    } else {
      more_held_by(s)[s.state.more_held++] = slice.block();
    }
  }
}

int send_queue::ring(const wr_list& list, ibv_send_wr*& bad) noexcept {
  if (const int rc = ibv_post_send(native_, list.wrs, &bad); rc != 0) return rc;
  std::uint32_t sequence = tail_ - std::uint32_t(list.requests.size());
  for (const wr_summary& request : list.requests) {
    tally().posted(request.kind);
    probe_posted(request.kind, sequence++);
  }
  return 0;
}

namespace {

bool is_long(const wr_summary& request) noexcept {
  return !request.local.empty() && request.local[0].size_bytes() > doorbell_batch::short_bytes_max;
}

}  // namespace

bool send_queue::batches(const wr_summary& request) const noexcept {
  return doorbells().is_worth_while() && request.kind <= request_kind::atomic &&
         request.local.size() <= 1 && doorbells().takes(*this, is_long(request));
}

void send_queue::post_batched(send_operation& o, const wr_summary& request) noexcept {
  if (doorbells().is_empty()) doorbells().begin(*this, last_signaled_);
  begin(o);
  doorbell_batch::entry& e = doorbells().next();
  fill(&o, {{&request, 1}, &e.wr, &e.sge}, true);
  probe_posted(request.kind, tail_ - 1);
  doorbells().add(e.wr, request.kind, request.takes_receive() || is_long(request));
  if (doorbells().is_complete()) ring_and_pump();
}

int send_queue::post_detached(const wr_list& list) noexcept {
  const std::size_t count = list.requests.size();
  if ((in_flight() != 0 || count > 1) && !has_long_ring()) return ENOMEM;
  for (std::size_t i = 0; i < count; ++i) {
    if (acquire(list.requests[i]) == errc{}) continue;
    release(list.requests.first(i));
    return EINVAL;
  }
  doorbells().passes(*this);
  const std::uint32_t signaled_before = last_signaled_;
  fill(nullptr, list, false);
  ibv_send_wr* bad = nullptr;
  const int rc = ring(list, bad);
  if (rc != 0)
    tail_ -= std::uint32_t(count) -
             take_back({signaled_before, rc, bad}, list.wrs[0], std::uint32_t(count));
  return std::abs(rc);
}

std::uint32_t send_queue::take_back(const post_failure& why, const ibv_send_wr& first,
                                    std::uint32_t count) noexcept {
  std::uint32_t sequence = tail_ - count;
  last_signaled_ = why.signaled_before;
  // Some devices have queued them all when their doorbell fails, and name none: then the device
  // keeps slots and memory until it is destroyed.
  for (const ibv_send_wr* wr = &first; wr != nullptr && wr != why.bad; wr = wr->next, ++sequence) {
    tally().posted(at(sequence).state.kind);
    if ((wr->send_flags & IBV_SEND_SIGNALED) != 0) last_signaled_ = sequence;
  }
  const std::uint32_t posted = count - (tail_ - sequence);
  for (; sequence != tail_; ++sequence) {
    tally().refused(at(sequence).state.kind);
    let_go_of_used(at(sequence));
  }
  return posted;
}

void send_queue::adopt(const send_operation& from, send_operation* to) noexcept {
  const std::uint32_t end = from.first_ + from.count_;
  for (std::uint32_t sequence = end - from.pending_; sequence != end; ++sequence)
    at(sequence).owner = to;
}

void send_queue::post_failed(send_operation& o, const post_failure& why,
                             const ibv_send_wr& first) noexcept {
  const std::uint32_t posted = take_back(why, first, o.count_);
  adopt(o, nullptr);
  tail_ = o.first_ + posted;
  o.end({.code = {std::abs(why.rc), std::system_category()},
         .call = "ibv_post_send",
         .index = posted < o.count_ ? posted : 0});
}

void send_queue::ring_batch() noexcept {
  const std::uint32_t count = doorbells().close();
  ibv_send_wr& first_wr = *doorbells().first_wr_;
  ibv_send_wr* bad = nullptr;
  if (const int rc = ibv_post_send(native_, &first_wr, &bad); rc != 0) [[unlikely]]
    return batch_failed({doorbells().signaled_before_, rc, bad}, first_wr, count);
  doorbells().count_in(tally());
}

void send_queue::batch_failed(const post_failure& why, const ibv_send_wr& first_wr,
                              std::uint32_t count) noexcept {
  doorbells().counts_ = {};
  const std::uint32_t first = tail_ - count;
  const std::uint32_t end = first + take_back(why, first_wr, count);
  for (std::uint32_t sequence = first; sequence != tail_; ++sequence) {
    // What it took for certain, and will tell of, ends as any other.
    const bool was_taken = end != tail_ && std::int32_t(sequence - end) < 0;
    if (was_taken && will_complete(sequence)) continue;
    if (send_operation* const owner = std::exchange(at(sequence).owner, nullptr))
      owner->end({.code = {std::abs(why.rc), std::system_category()}, .call = "ibv_post_send"});
  }
  tail_ = end;
}

void send_queue::ring_and_pump() noexcept {
  ring_batch();
  pump();
}

/// A queue that posts is about to look for room, or has looked.
void doorbell_batch::ring_before(send_queue& posts) noexcept {
  if (last_ == &posts)
    last_->ring_batch();
  else
    last_->ring_and_pump();
}

void doorbell_batch::on_turn_end() noexcept { last_->ring_and_pump(); }

void send_queue::retire_to(std::uint32_t end) noexcept {
  while (head_ != end) retire();
}

void send_queue::retire_special() noexcept {
  slot& oldest = at(head_);
  count_succeeded(oldest.state.kind);
  let_go_of_used(oldest);
  send_operation* const owner = std::exchange(oldest.owner, nullptr);
  advance(1);
  if (owner == nullptr) return;
  if ((oldest.state.special & slot::atomic) != 0)
    owner->values_before_[oldest.state.index] = seldom_->atomic_values[index_of(oldest)];
  owner->slot_ended();
}

void send_queue::retire(const request_outcome& failure) noexcept {
  slot& oldest = at(head_);
  tally().failed(oldest.state.kind);
  CORDMA_PROBE5(complete, num_, oldest.state.kind, head_, failure.code.value(), 0);
  let_go_of_used(oldest);
  send_operation* const owner = std::exchange(oldest.owner, nullptr);
  advance(1);
  if (owner != nullptr) owner->slot_failed(failure, oldest.state.index);
}

bool send_queue::failed(std::uint32_t sequence, const request_outcome& why) noexcept {
  if (sequence - head_ >= in_flight()) return false;
  retire_to(sequence);
  retire(why);
  return true;
}

void send_queue::flush_all() noexcept {
  if (will_end_all() || in_flight() == seldom_->depth_max) return;
  const wr_summary last{
      .kind = request_kind::send, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
  ibv_send_wr wr;
  ibv_sge none;
  // Refused, destroying the queue pair remains.
  static_cast<void>(post_detached({{&last, 1}, &wr, &none}));
}

void send_queue::end_all(const request_outcome& how) noexcept {
  ring_now();
  for (std::uint32_t sequence = head_; sequence != tail_; ++sequence) {
    slot& its = at(sequence);
    send_operation* const owner = std::exchange(its.owner, nullptr);
    if (owner == nullptr) continue;
    owner->slot_failed(how, its.state.index);
  }
  end_waiting(how);
}

void send_queue::end_waiting(const request_outcome& how) noexcept {
  while (!seldom_->waiting.empty()) {
    send_operation& next = seldom_->waiting.pop_front();
    const bool is_own = next.is_queues_own_;
    next.list_requests([](send_operation& o, const wr_list& list) noexcept {
      o.queue_->release(list.requests);
      for (const wr_summary& request : list.requests) o.queue_->tally().refused(request.kind);
    });
    next.end(how);
    if (is_own) end_own(next);
  }
  set_at_once_max();
}

void send_queue::release_slots() noexcept {
  const request_outcome closed{.code = errc::closed, .call = "close"};
  while (in_flight() > 0) retire(closed);
}

}  // namespace cordma
