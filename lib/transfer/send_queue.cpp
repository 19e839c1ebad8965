#include <cordma/detail/transfer/send_queue.hpp>

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

std::optional<request_outcome> send_queue::hold(const request_shape& request) noexcept {
  if (request.takes_receive && keeps_receives_)
    return request_outcome{.code = errc::refused, .call = "message_stream"};
  std::size_t bytes = request.is_atomic() ? sizeof(std::uint64_t) : 0;
  std::size_t used = 0;
  if (request.window != nullptr) {
    if (const errc why = refusal_of(*request.window); why != errc{}) return refused(why, 0, 0);
  } else {
    for (const const_local_mr_slice& slice : request.local) {
      bytes += slice.size_bytes();
      used += slice.empty() ? 0 : 1;
    }
  }
  const std::uint32_t slices_max = request.is_read() ? seldom_->read_sge_max : seldom_->sge_max;
  if (used > slices_max) return refused(errc::too_many_slices, used, slices_max);
  if ((request.is_read() || request.is_atomic()) && seldom_->qp.rd_atomic_max() == 0) {
    // The peer serves none: the device would hold it back for ever.
    return refused(errc::not_supported, 0, 0);
  }
  if (bytes > message_max_bytes_) return refused(errc::wrong_length, bytes, message_max_bytes_);
  if (request.remote != nullptr) {
    const remote_mr_slice& remote = *request.remote;
    if (request.is_atomic() && remote.size_bytes() != sizeof(std::uint64_t)) {
      return refused(errc::wrong_length, remote.size_bytes(), sizeof(std::uint64_t));
    }
    if (request.is_atomic() && remote.address() % sizeof(std::uint64_t) != 0) {
      return refused(errc::misaligned, 0, 0);
    }
    if (bytes > remote.size_bytes()) return refused(errc::out_of_range, bytes, remote.size_bytes());
  }
  std::size_t held = 0;
  errc why{};
  for (const const_local_mr_slice& slice : request.local) {
    if (slice.is_held()) {
      if (!try_hold(*slice.block(), slice.generation())) {
        const bool is_stale = slice.block()->generation() != slice.generation();
        why = is_stale ? errc::stale_slice : errc::wrong_protection_domain;
        break;
      }
      if (!verbs::allows(slice.block()->access(), request.local_access)) why = errc::access_denied;
      if (why != errc{}) {
        held_.let_go(*slice.block());
        break;
      }
    }
    ++held;
  }
  if (why == errc{}) return std::nullopt;
  let_go({.local = request.local.first(held)});
  return refused(why, 0, 0);
}

std::optional<request_outcome> send_queue::hold(std::span<const request_shape> requests) noexcept {
  for (std::uint32_t i = 0; i < requests.size(); ++i) {
    std::optional<request_outcome> why = hold(requests[i]);
    if (!why) continue;
    let_go(requests.first(i));
    why->index = i;
    return why;
  }
  return std::nullopt;
}

std::optional<request_outcome> send_queue::admit(submission& s) noexcept {
  if (seldom_->refusal) return seldom_->refusal;
  if (s.count_ > batch_max()) return refused(errc::limit_exceeded, s.count_, batch_max());
  if (s.count_ > 1 && !has_long_ring())  // For one an end makes room.
    return request_outcome{.code = std::make_error_code(std::errc::not_enough_memory),
                           .call = "post_send"};
  return s.hold();
}

void send_queue::enqueue(submission& s) noexcept {
  if (const std::optional<request_outcome> why = admit(s)) return end_unposted(s, *why);
  if (((seldom_->waiting.empty() && !seldom_->is_room_kept) || s.is_urgent_) && has_room(s))
    return s.post_now();
  s.state_ = submission::state::queued;
  seldom_->waiting.push_back(s);
  set_at_once_max();
  tally().stalled(s.count_);
}

void send_queue::end_unposted(submission& s, const request_outcome& how) noexcept {
  count_refused(s, 0);
  s.end(how);
}

void send_queue::count_refused(const submission& s, std::uint32_t from) noexcept {
  for (std::uint32_t i = from; i < s.count_; ++i) tally().refused(s.kind_of(i));
}

bool send_queue::has_room(const submission& s) noexcept {
  const std::uint32_t needed = in_flight() + s.count_;
  return needed <= (s.is_urgent_ ? seldom_->depth_max : seldom_->depth) &&
         (needed == 1 || has_long_ring());
}

bool send_queue::gets_slots_for(std::uint32_t count) noexcept {
  return seldom_->ring == nullptr && at_once_max_ != 0 && has_long_ring() &&
         in_flight() + count <= at_once_max_;
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
    submission& next = seldom_->waiting.pop_front();
    const bool owns_itself = next.owns_itself_;  // Who is told at once may have destroyed it.
    next.post_now();
    if (owns_itself) next.destroy();
  }
  set_at_once_max();
}

void send_queue::withdraw(submission& s) noexcept {
  s.list_hook<submission>::unlink();
  s.let_go();
  set_at_once_max();
  pump();  // It may have been the one that asked for too much room.
}

errc send_queue::refused_by_lease(const remote_mr_slice& remote,
                                  verbs::access wanted) const noexcept {
  const lease_block& lease = *remote.lease();
  const errc why = lease.refusal(remote.generation(), this, wanted);
  // Only now: of a lease that is gone the block may be another thread's.
  return why == errc{} && doorbells().home().is_past(lease.usable_until()) ? errc::lease_expired
                                                                           : why;
}

int send_queue::post_alone(ibv_send_wr& first, memory_block* memory) noexcept {
  if ((in_flight() != 0 || first.next != nullptr) && !has_long_ring()) return ENOMEM;
  doorbells().passes(*this);
  const std::uint32_t signaled_before = last_signaled_;
  std::uint32_t sequence = tail_;
  for (ibv_send_wr* wr = &first; wr != nullptr; wr = wr->next, ++sequence) {
    wr->wr_id = wr_id_base_ | sequence;
    wr->send_flags |= entry_flag(sequence, (wr->send_flags & IBV_SEND_SIGNALED) != 0);
  }
  ibv_send_wr* bad = nullptr;
  const int rc = ibv_post_send(native_, &first, &bad);
  if (rc == 0) {
    bad = nullptr;
  } else {
    last_signaled_ = signaled_before;
  }
  for (const ibv_send_wr* wr = &first; wr != nullptr && wr != bad; wr = wr->next, ++tail_) {
    const bool is_bind = wr->opcode == IBV_WR_BIND_MW;
    const request_kind kind = is_bind ? request_kind::bind : request_kind::send;
    slot& taken = at(tail_);
    taken.state.kind = kind;
    tally().posted(kind);
    CORDMA_PROBE3(post, num_, unsigned(kind), tail_);
    if (rc != 0 && (wr->send_flags & IBV_SEND_SIGNALED) != 0) last_signaled_ = tail_;
    if (memory == nullptr || wr->next != nullptr) continue;
    held_.hold(*memory);
    taken.held = memory;
  }
  return std::abs(rc);
}

void send_queue::post_refused(submission& s, std::span<const request_shape> requests) noexcept {
  std::uint32_t index = 0;
  errc why{};
  for (std::uint32_t i = 0; i < requests.size() && why == errc{}; ++i) {
    index = i;
    why = lease_refusal(requests[i]);  // Once more: no lease comes back.
  }
  let_go(requests);
  request_outcome how = refused(why, 0, 0);
  how.index = index;
  end_unposted(s, how);
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

void send_queue::adopt(const submission& from, submission* to) noexcept {
  const std::uint32_t end = from.first_ + from.count_;
  for (std::uint32_t sequence = end - from.pending_; sequence != end; ++sequence)
    at(sequence).owner = to;
}

void send_queue::post_failed(submission& s, const post_failure& why,
                             const ibv_send_wr& first) noexcept {
  const std::uint32_t posted = take_back(why, first, s.count_);
  adopt(s, nullptr);
  while (tail_ != s.first_ + posted) at(--tail_).owner = nullptr;
  // Who looks next does not take for its end what the device may tell of it all the same.
  if (!s.is_awaited_) s.first_ = tail_;
  s.end({.code = {std::abs(why.rc), std::system_category()},
         .call = "ibv_post_send",
         .index = posted < s.count_ ? posted : 0});
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
    if (submission* const owner = std::exchange(at(sequence).owner, nullptr))
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
  submission* const owner = std::exchange(oldest.owner, nullptr);
  advance(1);
  if (owner == nullptr) return;
  if ((oldest.state.special & slot::atomic) != 0)
    owner->values_before_[oldest.state.index] = seldom_->atomic_values[index_of(oldest)];
  owner->slots_ended(1);
}

void send_queue::retire(const request_outcome& failure) noexcept {
  slot& oldest = at(head_);
  tally().failed(oldest.state.kind);
  CORDMA_PROBE5(complete, num_, oldest.state.kind, head_, failure.code.value(), 0);
  let_go_of_used(oldest);
  submission* const owner = std::exchange(oldest.owner, nullptr);
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
  ibv_send_wr last{};
  last.opcode = IBV_WR_SEND;
  last.send_flags = IBV_SEND_SIGNALED;
  // Refused, destroying the queue pair remains.
  static_cast<void>(post_alone(last, nullptr));
}

void send_queue::end_all(const request_outcome& how) noexcept {
  ring_now();
  for (std::uint32_t sequence = head_; sequence != tail_; ++sequence) {
    slot& its = at(sequence);
    submission* const owner = std::exchange(its.owner, nullptr);
    if (owner == nullptr) continue;
    owner->slot_failed(how, its.state.index);
  }
  end_waiting(how);
}

void send_queue::end_waiting(const request_outcome& how) noexcept {
  while (!seldom_->waiting.empty()) {
    submission& next = seldom_->waiting.pop_front();
    const bool owns_itself = next.owns_itself_;
    next.let_go();
    end_unposted(next, how);
    if (owns_itself) next.destroy();
  }
  set_at_once_max();
}

void send_queue::release_slots() noexcept {
  const request_outcome closed{.code = errc::closed, .call = "close"};
  while (in_flight() > 0) retire(closed);
}

}  // namespace cordma
