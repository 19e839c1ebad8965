#pragma once

#include <cordma/coro/scheduler.hpp>
#include <cordma/detail/memory/memory_block.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cordma {

/// What the send queues, or the receive queues, of one completion queue and one protection domain
/// hold of memory. Mostly their requests are about one block: that one they hold once, and count
/// who needs it, since a locked instruction each to hold and to let go would be a third of what a
/// request costs; a few others are counted farther away. A task that looks for the end of its
/// requests itself mostly needs the same for the next: so what is held first is held until its turn
/// ends, if it is an allocator's and small: nobody misses that so long when it is freed. What is
/// the program's own, or large, is let go of at once. Thread: one.
class held_memory final : private turn_end {
 public:
  held_memory(const ibv_pd* pd, scheduler& home) noexcept : pd_{pd}, home_{home} {}
  held_memory(const held_memory&) = delete;
  ~held_memory() { let_go_of_turn(); }
  static constexpr std::size_t turn_bytes_max = std::size_t{1} << 20;

  /// As `memory_block`'s. False also: it is of another protection domain. `for_turn`: for a task
  /// that may look.
  [[nodiscard, gnu::always_inline]] bool try_hold(memory_block& block, std::uint32_t generation,
                                                  bool for_turn) noexcept {
    if (&block != block_) [[unlikely]]
      return try_hold_other(block, generation, for_turn);
    if (block.generation() != generation) return false;
    ++holds_;
    return true;
  }
  /// One more of what is held, or is of that protection domain.
  void hold(memory_block& block) noexcept;
  /// It does not matter which hold of a block it is: there may be others beside those counted here,
  /// and as many as there were are let go.
  [[gnu::always_inline]] void let_go(memory_block& block) noexcept {
    if (&block != block_) [[unlikely]]
      return let_go_of_other(block);
    if (--holds_ > 0) [[likely]]
      return;
    block_ = nullptr;
    block.let_go();
  }

 private:
  struct counted {
    memory_block* block = nullptr;  // Null while nobody needs it.
    std::uint32_t holds = 0;        // Of which the block knows one.
  };
  [[gnu::noinline]] bool try_hold_other(memory_block& block, std::uint32_t generation,
                                        bool for_turn) noexcept;
  [[gnu::noinline]] void let_go_of_other(memory_block& block) noexcept;
  [[nodiscard]] counted& other(const memory_block& block) noexcept {
    return others_[reinterpret_cast<std::uintptr_t>(&block) / sizeof block % others_.size()];
  }
  /// It was held just now. Whether it is the one.
  bool count(memory_block& block) noexcept;
  void hold_for_turn(memory_block& block) noexcept;
  void on_turn_end() noexcept override { let_go_of_turn(); }
  void let_go_of_turn() noexcept {
    if (of_turn_ != nullptr) let_go(*std::exchange(of_turn_, nullptr));
  }

  // As in `counted`, of the one.
  memory_block* block_ = nullptr;
  std::uint32_t holds_ = 0;
  const ibv_pd* const pd_;
  scheduler& home_;
  memory_block* of_turn_ = nullptr;  // Null: none.
  std::array<counted, 16> others_;
};

/// Of both kinds of queues.
struct held_by_queues {
  held_by_queues(const ibv_pd* pd, scheduler& home) noexcept
      : sends{pd, home}, receives{pd, home} {}
  held_memory sends;
  held_memory receives;
};

}  // namespace cordma
