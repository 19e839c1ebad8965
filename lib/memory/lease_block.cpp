#include <cordma/detail/memory/lease_block.hpp>

#include "block_slab.hpp"

namespace cordma {
namespace {

using slab = block_slab<lease_block>;

[[maybe_unused]] const auto& lease_blocks_at_load = slab::instance();

/// Blocks that one thread keeps without a lock: a lease begins and ends on one thread.
class kept_blocks {
 public:
  ~kept_blocks() {
    while (!blocks_.empty()) slab::instance().give_back(blocks_.pop());
    most_ = 0;  // A lease that ends in a later destructor keeps no block.
  }
  lease_block& take() {
    if (blocks_.empty()) slab::instance().take(1, [&](lease_block& one) { blocks_.push(one); });
    return blocks_.pop();
  }
  void give_back(lease_block& block) noexcept {
    if (blocks_.size() < most_)
      blocks_.push(block);
    else
      slab::instance().give_back(block);
  }

 private:
  block_list<lease_block> blocks_;
  std::size_t most_ = 64;
};

thread_local kept_blocks kept;

}  // namespace

lease_block& lease_block::make(const void* queue) {
  lease_block& block = kept.take();
  block.holders_ = 1;
  block.queue_ = queue;
  block.usable_until_ = {};
  block.access_ = verbs::access::none;
  block.refusal_ = {};
  block.was_used_ = false;
  return block;
}

void lease_block::dispose() noexcept {
  generation_.store(generation() + 1, std::memory_order_relaxed);
  kept.give_back(*this);
}

}  // namespace cordma
