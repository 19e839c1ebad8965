#include "object/xrc_queues.hpp"

#include "node/fork_mutex.hpp"
#include "node/node.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

namespace softverbs {
namespace {

struct listed_queue {
  std::atomic<shared_receive_queue*> srq{nullptr};
  std::atomic<std::uint32_t> pins{0};
};
using listed_queues = std::array<listed_queue, indices_max>;

fork_mutex listing;
std::uint32_t next_index = 1;  ///< under `listing`; index 0 is never given out
/// Made with the first queue, and never freed: readers do not lock.
std::atomic<listed_queues*> all{nullptr};

listed_queue* address_of(std::uint32_t number) noexcept {
  listed_queues* const listed = all.load(std::memory_order_acquire);
  return listed == nullptr ? nullptr : &(*listed)[number & index_mask];
}

}  // namespace

std::uint32_t list_xrc_queue(node& local_node, shared_receive_queue& srq) {
  const std::lock_guard lock{listing};
  if (all.load(std::memory_order_relaxed) == nullptr) all.store(new listed_queues);
  for (std::uint32_t tries = 0; tries < index_max; ++tries) {
    const std::uint32_t index = next_index;
    next_index = index == index_max ? 1 : index + 1;  // A number is reused as late as possible.
    listed_queue& free_one = *address_of(index);
    if (free_one.srq.load(std::memory_order_relaxed) != nullptr) continue;
    srq.number = std::uint32_t{local_node.slot()} << index_bits | index;
    free_one.srq.store(&srq);
    return srq.number;
  }
  return 0;
}

void unlist_xrc_queue(const shared_receive_queue& srq) noexcept {
  listed_queue& listed = *address_of(srq.number);
  listed.srq.store(nullptr);
  while (listed.pins.load() != 0) std::this_thread::yield();
}

xrc_queue_pin::xrc_queue_pin(std::uint32_t number, const xrc_domain_id& domain) noexcept
    : number_{number} {
  listed_queue* const listed = address_of(number);
  if (listed == nullptr) return;
  listed->pins.fetch_add(1);
  srq_ = listed->srq.load();
  if (srq_ != nullptr && srq_->number == number && soft(srq_->xrcd).id == domain) return;
  srq_ = nullptr;
  listed->pins.fetch_sub(1, std::memory_order_release);
}

xrc_queue_pin::~xrc_queue_pin() {
  if (srq_ != nullptr) address_of(number_)->pins.fetch_sub(1, std::memory_order_release);
}

}  // namespace softverbs
