#pragma once

#include "block_list.hpp"

#include "base/fork.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace cordma {

/// All unused blocks of the process. Blocks are never unmapped, so that a stale slice can be
/// checked. \thread any.
template <class Block>
class block_slab {
 public:
  /// Passes `count` blocks to `use`. \errors bad_alloc.
  template <class Use>
  void take(std::size_t count, Use use) {
    const std::lock_guard lock{mutex_};
    while (count-- > 0) {
      if (free_.empty()) grow();
      use(free_.pop());
    }
  }
  void give_back(Block& block) noexcept {
    const std::lock_guard lock{mutex_};
    free_.push(block);
  }
  /// Moves blocks from `from` until that has `left`.
  void give_back(block_list<Block>& from, std::size_t left) noexcept {
    const std::lock_guard lock{mutex_};
    while (from.size() > left) free_.push(from.pop());
  }
  /// Returns the slab through a pointer that is never freed: slices may be checked until the very
  /// end. Call it while the library is loaded: a fork during the first call would leave the child
  /// none.
  static block_slab& instance() {
    static auto* const slab = new block_slab;
    return *slab;
  }

 private:
  static constexpr std::size_t blocks_per_chunk = 256;

  void grow() {
    auto made = std::make_unique<chunk>();
    for (Block& block : made->blocks) free_.push(block);
    made->next = std::move(chunks_);
    chunks_ = std::move(made);
  }

  struct chunk {
    std::array<Block, blocks_per_chunk> blocks;
    std::unique_ptr<chunk> next;
  };
  detail::fork_mutex mutex_;
  block_list<Block> free_;
  std::unique_ptr<chunk> chunks_;  // Lets leak checkers see the chunks as reachable.
};

}  // namespace cordma
