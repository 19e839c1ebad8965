#include "queue/completion_queue.hpp"

#include "queue/completion_channel.hpp"
#include "wire/time.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

namespace softverbs {
namespace {

constexpr std::size_t slots_first = 64;

std::size_t slot_index(const completion_queue& cq, std::uint64_t index) noexcept {
  return index & (cq.slots - 1);
}

completion& at(completion_queue& cq, std::uint64_t index) noexcept {
  return cq.ring[slot_index(cq, index)];
}

/// Makes sure that the next entry has a slot; the queue holds `cqes`.
void make_slot(completion_queue& cq, std::uint64_t cqes) noexcept {
  if (cqes == 0) {
    cq.tail = 0;
    cq.slots = std::min(slots_first, cq.ring.size());
  }
  if (cqes < cq.slots) return;
  // All slots are taken. Double them: the entries of every other round move to the new half.
  for (std::uint64_t index = cq.tail - cqes; index != cq.tail; ++index) {
    if ((index & cq.slots) == 0) continue;
    const std::size_t from = slot_index(cq, index), to = from + cq.slots;
    cq.ring[to] = cq.ring[from];
    if (!cq.timestamps.empty()) cq.timestamps[to] = cq.timestamps[from];
  }
  cq.slots *= 2;
}

}  // namespace

std::uint64_t completion_timestamp() noexcept {
  const auto since = clock::is_simulated() ? clock::now().time_since_epoch()
                                           : std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

namespace {

/// Queues the event of an arm, which announces all entries of the queue.
void raise_event(completion_queue& cq) noexcept {
  cq.arm = armed::no;
  cq.silent = unannounced::none;
  if (cq.channel != nullptr) notify(*cq.channel, cq);
}

bool is_due(armed how, unannounced what) noexcept {
  if (how == armed::any) return what != unannounced::none;
  return how == armed::solicited && what == unannounced::solicited;
}

/// Raises the event for new entries if the queue is armed for them.
void announce(completion_queue& cq, bool solicited) noexcept {
  cq.silent = std::max(cq.silent, solicited ? unannounced::solicited : unannounced::unsolicited);
  if (is_due(cq.arm, cq.silent)) raise_event(cq);
}

/// Frees the send WQEs up to that of this entry.
void release(const completion& cqe) noexcept {
  if (cqe.released == nullptr) return;
  std::uint64_t before = cqe.released->load(std::memory_order_relaxed);
  while (before < cqe.release_to && !cqe.released->compare_exchange_weak(before, cqe.release_to)) {
  }
}

/// Removes the oldest entry and returns its index. Under the mutex; the queue is not empty.
std::uint64_t pop(completion_queue& cq) noexcept {
  const std::uint64_t count = cq.count.load(std::memory_order_relaxed);
  const std::uint64_t oldest = cq.tail - cq.hidden - count;
  cq.count.store(count - 1, std::memory_order_relaxed);
  release(at(cq, oldest));
  return oldest;
}

}  // namespace

bool completion_writer::push(const completion& cqe, bool solicited) noexcept {
  completion_queue& cq = cq_;
  const std::uint64_t count = cq.count.load(std::memory_order_relaxed);
  if (cq.overrun || count + cq.hidden >= static_cast<std::uint64_t>(cq.handle.cqe)) {
    if (cq.ignores_overrun) return true;
    is_first_loss_ |= !std::exchange(cq.overrun, true);
    return false;
  }
  if (cqe.wc.status != IBV_WC_SUCCESS) solicited = true;  // ibv_req_notify_cq(3)
  make_slot(cq, count + cq.hidden);
  if (!cq.timestamps.empty()) cq.timestamps[slot_index(cq, cq.tail)] = completion_timestamp();
  at(cq, cq.tail++) = cqe;
  if (cq.withheld) {
    ++cq.hidden;
    cq.hidden_solicited |= solicited;
  } else {
    if (count == 0) cq.silent = unannounced::none;
    cq.count.store(count + 1, std::memory_order_release);
    announce(cq, solicited);
  }
  return true;
}

bool push(completion_queue& cq, const completion& cqe, bool solicited) noexcept {
  return completion_writer{cq}.push(cqe, solicited);
}

void arm(completion_queue& cq, armed how) {
  const std::lock_guard lock{cq.mutex};
  cq.arm = std::max(cq.arm, how);
  if (cq.count.load(std::memory_order_relaxed) != 0 && is_due(cq.arm, cq.silent)) raise_event(cq);
}

void arm_for_later(completion_queue& cq, armed how) {
  const std::lock_guard lock{cq.mutex};
  cq.arm = std::max(cq.arm, how);
}

int take(completion_queue& cq, int cqes_max, ibv_wc* cqes) {
  if (cq.count.load(std::memory_order_acquire) == 0) return 0;
  const std::lock_guard lock{cq.mutex};
  int taken = 0;
  while (taken < cqes_max && cq.count.load(std::memory_order_relaxed) != 0)
    cqes[taken++] = at(cq, pop(cq)).wc;
  return taken;
}

bool take_one(completion_queue& cq) {
  if (cq.count.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock{cq.mutex};
  if (cq.count.load(std::memory_order_relaxed) == 0) return false;
  const std::uint64_t index = pop(cq);
  cq.polled = at(cq, index);
  if (!cq.timestamps.empty()) cq.polled_timestamp = cq.timestamps[slot_index(cq, index)];
  return true;
}

bool resize(completion_queue& cq, int cqe) {
  queue_array<completion> ring{std::bit_ceil(static_cast<std::size_t>(cqe)), cq.memory,
                               queue_resource::completion_queue};
  const std::lock_guard lock{cq.mutex};
  std::vector<std::uint64_t> timestamps(cq.timestamps.empty() ? 0 : ring.size());
  const std::uint64_t cqes = cq.count.load(std::memory_order_relaxed) + cq.hidden;
  if (cqes > static_cast<std::uint64_t>(cqe)) return false;
  for (std::uint64_t i = 0; i != cqes; ++i) {
    const std::size_t from = slot_index(cq, cq.tail - cqes + i);
    ring[i] = cq.ring[from];
    if (!timestamps.empty()) timestamps[i] = cq.timestamps[from];
  }
  cq.slots = ring.size();
  cq.ring = std::move(ring);
  cq.timestamps = std::move(timestamps);
  cq.tail = cqes;
  cq.handle.cqe = cqe;
  return true;
}

void forget(completion_queue& cq, std::uint32_t qp_num) {
  const std::lock_guard lock{cq.mutex};
  const std::uint64_t visible = cq.count.load(std::memory_order_relaxed);
  const std::uint64_t end = cq.tail;
  std::uint64_t left_visible = visible;
  cq.tail -= visible + cq.hidden;
  for (std::uint64_t from = cq.tail, end_visible = end - cq.hidden; from != end; ++from) {
    if (at(cq, from).wc.qp_num != qp_num) {
      if (!cq.timestamps.empty())
        cq.timestamps[slot_index(cq, cq.tail)] = cq.timestamps[slot_index(cq, from)];
      at(cq, cq.tail++) = at(cq, from);
    } else if (from < end_visible)
      --left_visible;
    else
      --cq.hidden;
  }
  cq.count.store(left_visible, std::memory_order_relaxed);
  if (cq.hidden == 0) cq.hidden_solicited = false;
}

void withhold(completion_queue& cq) {
  const std::lock_guard lock{cq.mutex};
  cq.withheld = true;
}

void release_withheld(completion_queue& cq) {
  const std::lock_guard lock{cq.mutex};
  cq.withheld = false;
  const bool solicited = std::exchange(cq.hidden_solicited, false);
  const std::uint64_t shown = std::exchange(cq.hidden, 0);
  if (shown == 0) return;
  const std::uint64_t before = cq.count.load(std::memory_order_relaxed);
  if (before == 0) cq.silent = unannounced::none;
  cq.count.store(before + shown, std::memory_order_release);
  announce(cq, solicited);
}

}  // namespace softverbs
