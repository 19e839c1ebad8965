#include <cordma/memory/memory_block.hpp>

#include "memory_block_list.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace cordma {

namespace {

/// All blocks of the process that nobody uses or has adopted.
class memory_block_slab {
 public:
  memory_block& take() {
    const std::lock_guard lock{mutex_};
    if (free_.empty()) grow();
    return free_.pop();
  }
  void give_back(memory_block& block) noexcept {
    const std::lock_guard lock{mutex_};
    free_.push(block);
  }
  /// Reached through a pointer that nobody frees: slices may be asked about until the very end.
  static memory_block_slab& instance() {
    static auto* const slab = new memory_block_slab;
    return *slab;
  }

 private:
  static constexpr std::size_t blocks_per_chunk = 256;

  void grow() {
    auto made = std::make_unique<chunk>();
    for (memory_block& block : made->blocks) free_.push(block);
    made->next = std::move(chunks_);
    chunks_ = std::move(made);
  }

  struct chunk {
    std::array<memory_block, blocks_per_chunk> blocks;
    std::unique_ptr<chunk> next;
  };
  std::mutex mutex_;
  memory_block_list free_;
  std::unique_ptr<chunk> chunks_;  // So that leak checkers see them reachable.
};

}  // namespace

memory_block& memory_block::adopt(ibv_pd* pd, verbs::access access, release_function on_release,
                                  void* context) {
  memory_block& block = memory_block_slab::instance().take();
  block.pd_ = pd;
  block.access_ = access;
  block.on_release_ = on_release;
  block.context_ = context;
  return block;
}

void memory_block::recycle(memory_block& block) noexcept {
  memory_block_slab::instance().give_back(block);
}

memory_block& memory_block::make(ibv_pd* pd, verbs::access access, release_function on_release,
                                 void* context) {
  memory_block& block = adopt(pd, access, on_release, context);
  block.begin(nullptr, 0);
  return block;
}

}  // namespace cordma
