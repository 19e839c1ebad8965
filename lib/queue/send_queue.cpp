#include "send_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <utility>

namespace cordma {

send_queue::cold_state::cold_state(verbs::protection_domain& pd, verbs::queue_pair& its,
                                   bool has_atomics)
    : qp{its},
      depth_max{its.capabilities().send_wr_max},
      depth{depth_max},
      sge_max{its.capabilities().send_sge_max},  // At least 1: `verbs::queue_pair` sees to it.
      read_sge_max{pd.limits().sge_rd_max == 0 ? sge_max
                                               : std::min(sge_max, pd.limits().sge_rd_max)},
      more_held(places() * (sge_max - 1)),
      atomic_values(has_atomics ? places() : 0) {
  if (has_atomics)
    atomic_mr.emplace(pd, atomic_values.data(), atomic_values.size() * sizeof(std::uint64_t),
                      verbs::access::local_write);
}

send_queue::send_queue(completion_queue_driver& driver, mr_hold_cache& held,
                       verbs::protection_domain& pd, verbs::queue_pair& qp,
                       std::size_t message_max_bytes, bool has_atomics)
    : held_{held},
      native_{qp.native_handle()},
      driver_{driver},
      unsignaled_max_{unsignaled_max_of(qp.capabilities().send_wr_max)},
      message_max_bytes_{std::uint32_t(message_max_bytes)},
      inline_max_(qp.capabilities().inline_max & 0x7fff'ffffu),
      num_{qp.num()},
      cold_{std::make_unique<cold_state>(pd, qp, has_atomics)} {
  set_at_once_max();
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
  set_at_once_max();
  unsignaled_max_ = unsignaled_max_of(depth());
}

bool send_queue::has_room() const noexcept {
  return cold_->waiting.empty() && in_flight() < depth();
}

bool send_queue::is_idle() const noexcept { return in_flight() == 0 && cold_->waiting.empty(); }

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
  cold_->ring.reset(new (std::nothrow) slot[cold_->places()]);
  if (cold_->ring == nullptr) return false;
  cold_->ring[0] = std::exchange(only_slot_, {});
  slots_ = cold_->ring.get();
  mask_ = std::uint32_t(cold_->places() - 1);
  origin_ = head_;
  set_at_once_max();
  return true;
}

void send_queue::post_waiting() noexcept {
  if (cold_->is_room_kept || cold_->refusal) return;
  while (!cold_->waiting.empty() && has_room(cold_->waiting.front())) {
    send_operation& next = cold_->waiting.pop_front();
    // An inline notification may have destroyed the operation.
    const bool is_own = next.is_queues_own_;
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
  pump();  // The withdrawn operation may have been the one that needed too much room.
}

std::uint32_t send_queue::take_back(const post_failure& why, const ibv_send_wr& first,
                                    std::uint32_t count) noexcept {
  std::uint32_t sequence = tail_ - count;
  last_signaled_ = why.signaled_before;
  // Some devices have queued all requests when their doorbell fails, and name none. The device then
  // keeps slots and memory until it is destroyed.
  for (const ibv_send_wr* wr = &first; wr != nullptr && wr != why.bad; wr = wr->next, ++sequence) {
    tally().posted(at(sequence).state.kind);
    if ((wr->send_flags & IBV_SEND_SIGNALED) != 0) last_signaled_ = sequence;
  }
  const std::uint32_t posted = count - (tail_ - sequence);
  for (; sequence != tail_; ++sequence) {
    tally().refused(at(sequence).state.kind);
    release_used(at(sequence));
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
    // A request that the device took for certain, and will complete, ends as any other.
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

void send_queue::retire_special() noexcept {
  slot& oldest = at(head_);
  count_succeeded(oldest.state.kind);
  release_used(oldest);
  send_operation* const owner = std::exchange(oldest.owner, nullptr);
  advance(1);
  if (owner == nullptr) return;
  if ((oldest.state.special & slot::atomic) != 0)
    owner->values_before_[oldest.state.index] = cold_->atomic_values[index_of(oldest)];
  owner->slot_ended();
}

void send_queue::retire(const request_outcome& failure) noexcept {
  slot& oldest = at(head_);
  tally().failed(oldest.state.kind);
  CORDMA_PROBE5(complete, num_, oldest.state.kind, head_, failure.code.value(), 0);
  release_used(oldest);
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

void send_queue::flush_all(request_kind counted_as) noexcept {
  if (will_end_all() || in_flight() == cold_->depth_max) return;
  const wr_summary last{.kind = counted_as, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
  ibv_send_wr wr;
  ibv_sge none;
  // If the device refuses it, only destroying the queue pair remains.
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
