#pragma once

#include <cordma/verbs/access.hpp>

#include <atomic>
#include <cstdint>

struct ibv_pd;

namespace cordma {

/// What stands behind every slice of one piece of registered memory: how many hold it, and which of
/// its lives it is in. Blocks are reused, never unmapped, so a slice of memory that was freed long
/// ago can still be asked whether it is stale. Thread: any.
class memory_block {
 public:
  /// Called once, by whoever lets go last, on its thread: deregisters and frees the memory.
  using release_function = void (*)(memory_block&, void* context) noexcept;

  /// A block with one holder, the owner. \errors bad_alloc. \cost a mutex: not for the data path.
  static memory_block& make(ibv_pd* pd, verbs::access access, release_function on_release,
                            void* context);

  [[nodiscard]] std::uint32_t generation() const noexcept {
    return std::uint32_t(word_.load(std::memory_order_relaxed) >> 32);
  }
  [[nodiscard]] const ibv_pd* pd() const noexcept { return pd_; }
  [[nodiscard]] verbs::access access() const noexcept { return access_; }
  /// Who holds it now, the owner included: for tests and diagnostics.
  [[nodiscard]] std::uint32_t holders() const noexcept {
    return std::uint32_t(word_.load(std::memory_order_relaxed));
  }

  /// Becomes a holder, unless the memory of that generation was given up. Acquire: what the owner
  /// wrote into this block before it gave out slices is seen by who holds it.
  [[nodiscard]] bool try_hold(std::uint32_t generation) noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    do {
      // A stale slice must not even touch the count: it may be that of a later life.
      if (std::uint32_t(word >> 32) != generation) return false;
    } while (!word_.compare_exchange_weak(word, word + 1, std::memory_order_acquire,
                                          std::memory_order_relaxed));
    return true;
  }
  void let_go() noexcept {
    // Release: our use of the memory comes before its end. Acquire, in the last: so does theirs.
    if (std::uint32_t(word_.fetch_sub(1, std::memory_order_acq_rel)) == 1) end_life();
  }
  /// The owner's letting go: from here on slices are stale; requests in flight keep the memory.
  void give_up() noexcept {
    word_.fetch_add(std::uint64_t{1} << 32, std::memory_order_relaxed);
    let_go();
  }

 private:
  friend class memory_block_slab;
  void end_life() noexcept;

  std::atomic<std::uint64_t> word_{0};  // generation << 32 | holders: one word, so that both are
                                        // looked at and changed in one step.
  ibv_pd* pd_ = nullptr;
  verbs::access access_ = verbs::access::none;
  release_function on_release_ = nullptr;
  void* context_ = nullptr;
  memory_block* next_free_ = nullptr;
};

}  // namespace cordma
