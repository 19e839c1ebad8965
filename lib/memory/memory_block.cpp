#include <cordma/memory/memory_block.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace cordma {

class memory_block_slab {
 public:
  memory_block& take() {
    const std::lock_guard lock{mutex_};
    if (free_ == nullptr) grow();
    return *std::exchange(free_, free_->next_free_);
  }
  void give_back(memory_block& block) noexcept {
    const std::lock_guard lock{mutex_};
    block.next_free_ = std::exchange(free_, &block);
  }
  /// Reached through a pointer that nobody frees: slices may be asked about until the very end.
  static memory_block_slab& instance() {
    static auto* const slab = new memory_block_slab;
    return *slab;
  }

 private:
  static constexpr std::size_t blocks_per_chunk = 256;

  void grow() {
    auto* const chunk = new memory_block[blocks_per_chunk];
    chunks_ = std::make_unique<chunk_list>(chunk_list{chunk, std::move(chunks_)});
    for (std::size_t i = 0; i < blocks_per_chunk; ++i) {
      chunk[i].next_free_ = std::exchange(free_, &chunk[i]);
    }
  }

  struct chunk_list {
    memory_block* blocks;
    std::unique_ptr<chunk_list> next;
  };
  std::mutex mutex_;
  memory_block* free_ = nullptr;
  std::unique_ptr<chunk_list> chunks_;  // So that leak checkers see them reachable.
};

memory_block& memory_block::make(ibv_pd* pd, verbs::access access, release_function on_release,
                                 void* context) {
  memory_block& block = memory_block_slab::instance().take();
  block.pd_ = pd;
  block.access_ = access;
  block.on_release_ = on_release;
  block.context_ = context;
  // Release: a slice that reaches another thread is checked against this word first.
  block.word_.fetch_add(1, std::memory_order_release);
  return block;
}

void memory_block::end_life() noexcept {
  on_release_(*this, context_);
  memory_block_slab::instance().give_back(*this);
}

}  // namespace cordma
