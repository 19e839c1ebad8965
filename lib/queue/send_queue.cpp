#include "send_queue.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace cordma {

send_queue::cold_state::cold_state(verbs::protection_domain& domain, verbs::queue_pair& of,
                                   bool has_atomics)
    : qp{of},
      pd{domain.native_handle()},
      // An XRC target takes no request, but each ring has a slot.
      depth_max{std::max(of.capabilities().send_wr_max, 1u)},
      depth{depth_max},
      sge_max{std::max(of.capabilities().send_sge_max, 1u)},
      read_sge_max{domain.limits().sge_rd_max == 0 ? sge_max
                                                   : std::min(sge_max, domain.limits().sge_rd_max)},
      more_held(ring_size() * (sge_max - 1)),
      atomic_values(has_atomics ? ring_size() : 0) {
  if (has_atomics)
    atomic_mr.emplace(domain, atomic_values.data(), atomic_values.size() * sizeof(std::uint64_t),
                      verbs::access::local_write);
}

send_queue::send_queue(completion_queue_driver& driver, mr_hold_cache& held,
                       verbs::protection_domain& pd, verbs::queue_pair& qp,
                       std::size_t message_max_bytes, bool has_atomics)
    : held_{held},
      native_{qp.native_handle()},
      driver_{driver},
      message_max_bytes_{std::uint32_t(message_max_bytes)},
      inline_max_(qp.capabilities().inline_max & 0x1fff'ffffu),
      has_destinations_(qp.type() == verbs::queue_pair_type::ud ||
                        qp.type() == verbs::queue_pair_type::xrc_initiator),
      num_{qp.num()},
      cold_{std::make_unique<cold_state>(pd, qp, has_atomics)} {
  reserve(0);
}

send_queue::~send_queue() {
  CORDMA_ASSERT(in_flight() == 0, "send queue destroyed before its queue pair");
  CORDMA_ASSERT(cold_->waiting.empty(), "send queue destroyed with requests that wait for room");
}

void send_queue::refuse(const request_outcome& how) noexcept {
  cold_->refusal = how;
  set_at_once_max();
}

void send_queue::reserve(std::uint32_t slots) noexcept {
  CORDMA_ASSERT(in_flight() == 0 && slots < cold_->depth_max && !cold_->is_room_kept,
                "slots are reserved before they are used");
  cold_->depth = cold_->depth_max - slots;
  unsignaled_max_ = (depth() + 1) / 2;
  set_at_once_max();
}

void send_queue::end_unposted(send_operation& o, std::span<const wr_summary> requests,
                              const request_outcome& how) noexcept {
  for (const wr_summary& request : requests) tally().refused(request.kind);
  o.end(how);
}

bool send_queue::has_room(const send_operation& o) noexcept {
  const std::uint32_t needed = in_flight() + o.count_;
  return needed <= (o.is_urgent_ ? cold_->depth_max : cold_->depth) &&
         (needed == 1 || has_long_ring());
}

bool send_queue::has_long_ring() noexcept {
  if (cold_->ring != nullptr) return true;
  cold_->ring.reset(new (std::nothrow) slot[cold_->ring_size()]);
  if (cold_->ring == nullptr) return false;
  cold_->ring[0] = std::exchange(only_slot_, {});
  slots_ = cold_->ring.get();
  mask_ = std::uint32_t(cold_->ring_size() - 1);
  origin_ = head_;
  set_at_once_max();
  return true;
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
  pump();  // The withdrawn operation may have been the one that needed too much room.
}

request_outcome send_queue::doorbell_failed(const failed_doorbell& doorbell) noexcept {
  request_outcome how = request_outcome::of_errno(doorbell.rc, detail::posting_call(doorbell.bad));
  const std::uint32_t first = tail_ - doorbell.count;
  std::uint32_t taken_end = first;
  last_signaled_ = doorbell.signaled_before;
  // Some devices have queued all requests when their doorbell fails, and name none. The device then
  // keeps slots and memory until it is destroyed.
  for (const ibv_send_wr* wr = doorbell.first; wr != nullptr && wr != doorbell.bad; wr = wr->next) {
    tally().posted(at(taken_end).kind);
    if ((wr->send_flags & IBV_SEND_SIGNALED) != 0) last_signaled_ = taken_end;
    ++taken_end;
  }
  for (std::uint32_t sequence = taken_end; sequence != tail_; ++sequence) {
    tally().refused(at(sequence).kind);
    release_used(at(sequence));
  }
  const std::uint32_t end = std::exchange(tail_, taken_end);
  for (std::uint32_t next = first; next != end;) {
    const std::uint32_t sequence = next++;
    // A request that the device took for certain, and will complete, ends as any other.
    const bool was_taken = taken_end != end && std::int32_t(sequence - taken_end) < 0;
    if (was_taken && will_complete(sequence)) continue;
    send_operation* const owner = at(sequence).owner;
    if (owner == nullptr) continue;
    adopt(*owner, nullptr);
    next = owner->first_ + owner->count_;
    const std::uint32_t index = taken_end - owner->first_;
    how.index = index < owner->count_ ? index : 0;
    owner->end(how);
  }
  return how;
}

void send_queue::adopt(const send_operation& from, send_operation* to) noexcept {
  const std::uint32_t end = from.first_ + from.count_;
  for (std::uint32_t sequence = end - from.pending_; sequence != end; ++sequence)
    at(sequence).owner = to;
}

void send_queue::ring_batch() noexcept {
  const std::uint32_t count = doorbells().close();
  ibv_send_wr& first = doorbells().first();
  ibv_send_wr* bad = nullptr;
  if (const int rc = ring(&first, &bad); rc == 0) [[likely]] {
    doorbells().count_in(tally());
  } else {
    doorbells().counts_ = {};
    doorbell_failed({rc, bad, &first, count, doorbells().signaled_before_});
  }
}

void send_queue::ring_and_pump() noexcept {
  ring_batch();
  pump();
}

/// Rings a group's doorbell before `posts`, which posts, checks for room or has just checked.
void doorbell_batch::ring_before(send_queue& posts) noexcept {
  if (last_ == &posts)
    last_->ring_batch();
  else
    last_->ring_and_pump();
}

void doorbell_batch::on_iteration_end() noexcept { last_->ring_and_pump(); }

void send_queue::retire_to(std::uint32_t end) noexcept {
  while (head_ != end) retire();
}

void send_queue::retire(const request_outcome& failure) noexcept {
  slot& oldest = at(head_);
  tally().failed(oldest.kind);
  CORDMA_PROBE5(complete, num_, oldest.kind, head_, failure.code.value(), 0);
  send_operation* const owner = free_oldest(oldest);
  if (owner != nullptr) owner->slot_failed(failure, oldest.index);
}

bool send_queue::failed(std::uint32_t sequence, const request_outcome& why) noexcept {
  if (sequence - head_ >= in_flight()) return false;
  retire_to(sequence);
  retire(why);
  return true;
}

void send_queue::flush_all(request_kind counted_as) noexcept {
  const bool is_datagram = cold_->qp.type() == verbs::queue_pair_type::ud;
  if (is_datagram || will_end_all() || in_flight() == cold_->depth_max) return;
  const wr_summary last{.kind = counted_as, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
  ibv_send_wr wr;
  ibv_sge none;
  // If the device refuses it, only destroying the queue pair remains.
  static_cast<void>(post_detached({{&last, 1}, &wr, &none}));
}

void send_queue::end_all(const request_outcome& how) noexcept {
  ring_now();
  for (std::uint32_t sequence = head_; sequence != tail_; ++sequence) {
    slot& which = at(sequence);
    send_operation* const owner = std::exchange(which.owner, nullptr);
    if (owner == nullptr) continue;
    owner->slot_failed(how, which.index);
  }
  end_waiting(how);
}

void send_queue::end_waiting(const request_outcome& how) noexcept {
  while (!cold_->waiting.empty()) {
    send_operation& next = cold_->waiting.pop_front();
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
