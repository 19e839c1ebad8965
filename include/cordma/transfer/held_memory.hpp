#pragma once

#include <cordma/coro/scheduler.hpp>
#include <cordma/memory/memory_block.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace cordma {

/// What a queue holds of memory. Mostly its requests are about one block: that one it holds once,
/// and counts who needs it, since a locked instruction each to hold and to let go would be a third
/// of what a request costs. A task that looks for the end of its requests itself mostly needs the
/// same for the next: so what it holds first is held until its turn ends, if it is an allocator's
/// and small: nobody misses that so long when it is freed. What is the program's own, or large, is
/// let go of at once. Thread: one.
class held_memory {
 public:
  /// What it holds for a turn. `held` goes after it. Apart, since it is seldom looked at.
  class turn_hold final : private turn_end {
   public:
    explicit turn_hold(held_memory& held) noexcept : held_{held} {}
    ~turn_hold() { let_go(); }
    static constexpr std::size_t turn_bytes_max = std::size_t{1} << 20;

   private:
    friend class held_memory;
    void take(memory_block& block, scheduler& home) noexcept;
    void on_turn_end() noexcept override { let_go(); }
    void let_go() noexcept {
      if (block_ != nullptr) held_.let_go(*std::exchange(block_, nullptr));
    }

    held_memory& held_;
    memory_block* block_ = nullptr;  // Null: none.
  };
  /// Of its queue.
  struct place {
    const ibv_pd* pd;
    scheduler& home;
    turn_hold* turn;  ///< Null: it is needed once.
  };

  /// As `memory_block`'s. `other`: mostly not needed, it calls `try_hold_other` with the same.
  template <class Other>
  [[nodiscard, gnu::always_inline]] bool try_hold(memory_block& block, std::uint32_t generation,
                                                  Other other) noexcept {
    if (&block != block_) [[unlikely]]
      return other();
    if (block.generation() != generation) return false;
    ++holds_;
    return true;
  }
  /// False also: it is of another protection domain.
  [[nodiscard]] bool try_hold_other(memory_block& block, std::uint32_t generation,
                                    const place& at) noexcept;
  /// One more of what is held, or is of that protection domain.
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
    if (&block == block_) [[likely]] {
      if (--holds_ > 0) [[likely]]
        return;
      block_ = nullptr;
    }
    block.let_go();
  }

 private:
  /// It was held just now. Whether it is the one.
  bool remember(memory_block& block) noexcept {
    if (block_ != nullptr) return false;
    block_ = &block;
    holds_ = 1;
    return true;
  }

  memory_block* block_ = nullptr;  // Null while nobody needs it.
  std::uint32_t holds_ = 0;        // Of which the block knows one.
};

}  // namespace cordma
