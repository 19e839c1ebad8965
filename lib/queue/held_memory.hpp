#pragma once

#include <cordma/detail/memory/memory_block.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cordma {

/// What the send queues, or the receive queues, of one completion queue and one protection domain
/// hold of memory. Mostly their requests are about one block: that one they hold once, and count
/// who needs it, since a locked instruction each to hold and to let go would be a third of what a
/// request costs; a few others are counted farther away. Thread: one.
class held_memory {
 public:
  explicit held_memory(const ibv_pd* pd) noexcept : pd_{pd} {}
  held_memory(const held_memory&) = delete;

  /// As `memory_block`'s. False also: it is of another protection domain.
  [[nodiscard, gnu::always_inline]] bool try_hold(memory_block& block,
                                                  std::uint32_t generation) noexcept {
    if (&block != block_) [[unlikely]]
      return try_hold_other(block, generation);
    if (block.generation() != generation) return false;
    ++holds_;
    return true;
  }
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
  [[gnu::noinline]] bool try_hold_other(memory_block& block, std::uint32_t generation) noexcept;
  [[gnu::noinline]] void let_go_of_other(memory_block& block) noexcept;
  [[nodiscard]] counted& other(const memory_block& block) noexcept {
    return others_[reinterpret_cast<std::uintptr_t>(&block) / sizeof block % others_.size()];
  }
  /// It was held just now.
  void count(memory_block& block) noexcept;

  // As in `counted`, of the one.
  memory_block* block_ = nullptr;
  std::uint32_t holds_ = 0;
  const ibv_pd* const pd_;
  std::array<counted, 16> others_;
};

/// Of both kinds of queues.
struct held_by_queues {
  explicit held_by_queues(const ibv_pd* pd) noexcept : sends{pd}, receives{pd} {}
  held_memory sends;
  held_memory receives;
};

}  // namespace cordma
