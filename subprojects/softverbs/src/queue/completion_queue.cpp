#include "queue/completion_queue.hpp"

#include "queue/completion_channel.hpp"

#include <algorithm>
#include <chrono>

namespace softverbs {
namespace {

completion& at(completion_queue& cq, std::uint64_t index) noexcept {
  return cq.ring[index & (cq.ring.size() - 1)];
}

std::uint64_t now_ns() noexcept {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

/// ibv_req_notify_cq(3): an error counts as solicited. One event for each arm.
void notify_if_armed(completion_queue& cq, const completion& entry) noexcept {
  const bool due = cq.arm == armed::any || (cq.arm == armed::solicited &&
                                            (entry.solicited || entry.wc.status != IBV_WC_SUCCESS));
  if (!due) return;
  cq.arm = armed::no;
  if (cq.channel != nullptr) notify(*cq.channel, cq);
}

/// The places of a send queue up to this entry's are free again.
void release(const completion& entry) noexcept {
  if (entry.released == nullptr) return;
  std::uint64_t before = entry.released->load(std::memory_order_relaxed);
  while (before < entry.release_to &&
         !entry.released->compare_exchange_weak(before, entry.release_to)) {
  }
}

/// Hands out the oldest entry; under the mutex, with one there.
completion& pop(completion_queue& cq) noexcept {
  const std::uint64_t count = cq.count.load(std::memory_order_relaxed);
  completion& entry = at(cq, cq.tail - cq.hidden - count);
  cq.count.store(count - 1, std::memory_order_relaxed);
  release(entry);
  return entry;
}

}  // namespace

bool push(completion_queue& cq, completion entry, bool solicited) noexcept {
  bool first_loss = false;
  {
    const std::lock_guard lock{cq.mutex};
    const std::uint64_t count = cq.count.load(std::memory_order_relaxed);
    if (!cq.overrun && count + cq.hidden < static_cast<std::uint64_t>(cq.handle.cqe)) {
      entry.solicited = solicited;
      if (cq.timestamps) entry.timestamp_ns = now_ns();
      at(cq, cq.tail++) = entry;
      if (cq.withheld) {
        ++cq.hidden;
      } else {
        cq.count.store(count + 1, std::memory_order_release);
        notify_if_armed(cq, entry);
      }
      return true;
    }
    if (cq.ignores_overrun) return true;
    first_loss = !cq.overrun;
    cq.overrun = true;
  }
  if (first_loss) raise_cq_error(cq);
  return false;
}

int take(completion_queue& cq, int entries_max, ibv_wc* entries) {
  if (cq.count.load(std::memory_order_acquire) == 0) return 0;
  const std::lock_guard lock{cq.mutex};
  int taken = 0;
  while (taken < entries_max && cq.count.load(std::memory_order_relaxed) != 0)
    entries[taken++] = pop(cq).wc;
  return taken;
}

bool take_one(completion_queue& cq, completion& entry) {
  if (cq.count.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock{cq.mutex};
  if (cq.count.load(std::memory_order_relaxed) == 0) return false;
  entry = pop(cq);
  return true;
}

void forget(completion_queue& cq, std::uint32_t qp_num) {
  const std::lock_guard lock{cq.mutex};
  const std::uint64_t visible = cq.count.load(std::memory_order_relaxed);
  const std::uint64_t end = cq.tail;
  std::uint64_t left_visible = visible;
  cq.tail -= visible + cq.hidden;
  for (std::uint64_t from = cq.tail, end_visible = end - cq.hidden; from != end; ++from) {
    if (at(cq, from).wc.qp_num != qp_num)
      at(cq, cq.tail++) = at(cq, from);
    else if (from < end_visible)
      --left_visible;
    else
      --cq.hidden;
  }
  cq.count.store(left_visible, std::memory_order_relaxed);
}

void withhold(completion_queue& cq) {
  const std::lock_guard lock{cq.mutex};
  cq.withheld = true;
}

void release_withheld(completion_queue& cq) {
  const std::lock_guard lock{cq.mutex};
  cq.withheld = false;
  for (; cq.hidden != 0; --cq.hidden) {
    cq.count.fetch_add(1, std::memory_order_release);
    notify_if_armed(cq, at(cq, cq.tail - cq.hidden));
  }
}

}  // namespace softverbs
