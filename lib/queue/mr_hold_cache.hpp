#pragma once

#include <cordma/detail/memory/memory_block.hpp>
#include <cordma/detail/queue/send_operation.hpp>
#include <cordma/memory/slice.hpp>
#include <cordma/verbs/access.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cordma {

/// Caches the memory that the send or receive queues of one completion queue and one protection
/// domain have acquired. Mostly their requests use one block. The cache acquires that block once
/// and counts its users. Two locked instructions per request, to acquire and to release, would be a
/// third of its cost. A few other blocks are counted in a slower table. \thread one.
class mr_hold_cache {
 public:
  explicit mr_hold_cache(const ibv_pd* pd) noexcept : pd_{pd} {}
  mr_hold_cache(const mr_hold_cache&) = delete;

  /// Acquires the memory of all `slices`, which must allow `needed`. Acquires none if one is
  /// refused; the outcome is that of `call`.
  template <class Slice>
  [[nodiscard, gnu::always_inline]] request_outcome acquire(std::span<const Slice> slices,
                                                            verbs::access needed,
                                                            const char* call) noexcept {
    for (std::size_t i = 0; i < slices.size(); ++i) {
      const Slice& slice = slices[i];
      if (!slice.is_held()) continue;
      memory_block& block = *slice.block();
      const bool is_acquired = try_acquire(block, slice.generation());
      if (is_acquired && verbs::allows(block.access(), needed)) [[likely]]
        continue;
      release(slices.first(is_acquired ? i + 1 : i));
      return {.code = is_acquired                                ? errc::access_denied
                      : block.generation() != slice.generation() ? errc::stale_slice
                                                                 : errc::wrong_protection_domain,
              .call = call};
    }
    return {};
  }
  /// Releases the memory of `slices` that never reached the device.
  template <class Slice>
  [[gnu::noinline]] void release(std::span<const Slice> slices) noexcept {
    for (const Slice& slice : slices)
      if (slice.is_held()) release(*slice.block());
  }
  /// Acquires as `memory_block` does. Returns false also if the block is of another protection
  /// domain.
  [[nodiscard, gnu::always_inline]] bool try_acquire(memory_block& block,
                                                     std::uint32_t generation) noexcept {
    if (&block != block_) [[unlikely]]
      return try_acquire_other(block, generation);
    if (block.generation() != generation) return false;
    ++holds_;
    return true;
  }
  /// Releases one use of `block`. Any of its uses may be released: the block is released once per
  /// acquisition, whether cached or not.
  [[gnu::always_inline]] void release(memory_block& block) noexcept {
    if (&block != block_) [[unlikely]]
      return release_other(block);
    if (--holds_ > 0) [[likely]]
      return;
    block_ = nullptr;
    block.release();
  }

 private:
  struct counted {
    memory_block* block = nullptr;  // Null while nobody uses the block.
    std::uint32_t holds = 0;        // Uses, for which the block counts one.
  };
  [[gnu::noinline]] bool try_acquire_other(memory_block& block, std::uint32_t generation) noexcept;
  [[gnu::noinline]] void release_other(memory_block& block) noexcept;
  [[nodiscard]] counted& other(const memory_block& block) noexcept {
    return others_[reinterpret_cast<std::uintptr_t>(&block) / sizeof block % others_.size()];
  }

  // The next two members are a `counted` for the common block.
  memory_block* block_ = nullptr;
  std::uint32_t holds_ = 0;
  const ibv_pd* const pd_;
  std::array<counted, 16> others_;
};

/// Memory that both kinds of queues have acquired.
struct held_by_queues {
  explicit held_by_queues(const ibv_pd* pd) noexcept : sends{pd}, receives{pd} {}
  mr_hold_cache sends;
  mr_hold_cache receives;
};

}  // namespace cordma
