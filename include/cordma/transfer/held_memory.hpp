#pragma once

#include <cordma/memory/memory_block.hpp>

#include <cstdint>

namespace cordma {

/// What a queue holds of memory. Mostly its requests are about one block: that one it holds once,
/// and counts who needs it, since a locked instruction each to hold and to let go would be a third
/// of what a request costs. Thread: one.
class held_memory {
 public:
  /// As `memory_block`'s.
  [[nodiscard]] bool try_hold(memory_block& block, std::uint32_t generation) noexcept {
    if (&block == block_) {
      if (block.generation() != generation) return false;
      ++holds_;
      return true;
    }
    if (!block.try_hold(generation)) return false;
    remember(block);
    return true;
  }
  void hold(memory_block& block) noexcept {
    if (&block == block_) {
      ++holds_;
    } else {
      block.hold();
      remember(block);
    }
  }
  /// It does not matter which hold of a block it is: there may be others beside those counted here,
  /// and as many as there were are let go.
  [[gnu::always_inline]] void let_go(memory_block& block) noexcept {
    if (&block == block_) {
      if (--holds_ > 0) return;
      block_ = nullptr;
    }
    block.let_go();
  }

 private:
  void remember(memory_block& block) noexcept {
    if (block_ != nullptr) return;
    block_ = &block;
    holds_ = 1;
  }

  memory_block* block_ = nullptr;  // Null while nobody needs it.
  std::uint32_t holds_ = 0;        // Of which the block knows one.
};

}  // namespace cordma
