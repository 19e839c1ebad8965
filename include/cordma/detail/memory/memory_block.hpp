#pragma once

#include <cordma/detail/base/step.hpp>
#include <cordma/verbs/access.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

struct ibv_pd;

namespace cordma {

namespace verbs {
class memory_region;
}
template <class Block>
class block_list;

/// Control block of one piece of registered memory, to which every slice refers: its reference
/// count and its generation. Blocks are reused, never unmapped, so a slice of memory freed long ago
/// can still be checked. \thread any.
class alignas(64) memory_block {
 public:
  /// Called once per generation by the last release, on its thread. Frees the memory, and calls
  /// `recycle` or keeps the block for another generation.
  using release_function = void (*)(memory_block&, void* context) noexcept;
  /// Returns the registration that the memory is part of.
  using registration_function = const verbs::memory_region& (*)(const memory_block&,
                                                                void* context) noexcept;

  /// Rights to memory. If its pages may go, only the device reads them: a request then fails, where
  /// a copy by the processor would end the process.
  struct rights {
    constexpr rights() noexcept = default;
    constexpr rights(verbs::access of, bool only_by_device = false) noexcept
        : access{of}, is_device_only{only_by_device} {}
    verbs::access access{};
    bool is_device_only = false;
  };
  /// The properties that the blocks of one owner share.
  struct kind {
    ibv_pd* pd;
    rights granted;
    release_function on_release;
    void* context;
    registration_function registration = nullptr;
  };

  /// Makes a block without holders, for `begin`. \errors bad_alloc. \cost a mutex.
  static memory_block& adopt(const kind& of);
  /// Adopts `count` blocks at once.
  static void adopt(const kind& of, block_list<memory_block>& into, std::size_t count);
  /// Begins a generation of this memory with one holder, the owner. \cost a few stores.
  void begin(void* address, std::size_t length) noexcept {
    address_ = address;
    length_ = length;
    // A plain store suffices: nobody holds the block, and a stale slice changes nothing. Release: a
    // slice that reaches another thread is checked against this word first.
    word_.store(word_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  /// Ends the adoption, between two generations.
  static void recycle(memory_block& block) noexcept;
  /// Ends the adoption of all but `left` blocks at once.
  static void recycle(block_list<memory_block>& from, std::size_t left) noexcept;
  /// Adopts a block and begins a generation with one holder.
  static memory_block& make(const kind& of);

  // The following functions return the arguments of `begin`, for `on_release`.
  [[nodiscard]] void* address() const noexcept { return address_; }
  [[nodiscard]] std::size_t length() const noexcept { return length_; }

  [[nodiscard]] std::uint32_t generation() const noexcept {
    return std::uint32_t(word_.load(std::memory_order_relaxed) >> 32);
  }
  [[nodiscard]] const ibv_pd* pd() const noexcept { return kind_.pd; }
  [[nodiscard]] verbs::access access() const noexcept { return kind_.granted.access; }
  [[nodiscard]] bool is_device_only() const noexcept { return kind_.granted.is_device_only; }
  /// Returns the registration of acquired memory. Null: it is unknown.
  [[nodiscard]] const verbs::memory_region* registration() const noexcept {
    return kind_.registration == nullptr ? nullptr : &kind_.registration(*this, kind_.context);
  }
  /// Returns the present number of holders, the owner included; for tests and diagnostics.
  [[nodiscard]] std::uint32_t holders() const noexcept {
    return std::uint32_t(word_.load(std::memory_order_relaxed));
  }

  /// Acquires the block, unless the memory of that generation was freed by its owner. Acquire: a
  /// holder sees what the owner wrote into this block before it made slices.
  [[nodiscard]] bool try_acquire(std::uint32_t generation) noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    do {
      // A stale slice must not even touch the count, which may belong to a later generation.
      if (std::uint32_t(word >> 32) != generation) return false;
    } while (!word_.compare_exchange_weak(word, word + 1, std::memory_order_acquire,
                                          std::memory_order_relaxed));
    return true;
  }
  [[gnu::always_inline]] void release() noexcept {
    // Release: this holder's use comes before the end. Acquire: for the last holder, so do all
    // others' uses.
    if (std::uint32_t(word_.fetch_sub(1, std::memory_order_acq_rel)) == 1) dispose();
  }
  /// Releases the owner's reference: slices are stale from here on; requests in flight keep the
  /// memory.
  void give_up() noexcept {
    constexpr std::uint64_t next_generation_one_less = (std::uint64_t{1} << 32) - 1;
    if (std::uint32_t(word_.fetch_add(next_generation_one_less, std::memory_order_acq_rel)) == 1)
      dispose();
  }
  /// Makes slices of that generation stale, as the owner's end does, but the owner still holds the
  /// memory. Returns false if they were stale before.
  bool revoke(std::uint32_t generation) noexcept {
    constexpr std::uint64_t next_generation = std::uint64_t{1} << 32;
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    do {
      if (std::uint32_t(word >> 32) != generation) return false;
    } while (!word_.compare_exchange_weak(word, word + next_generation, std::memory_order_acq_rel,
                                          std::memory_order_relaxed));
    return true;
  }

 private:
  friend class block_list<memory_block>;
  void dispose() noexcept { kind_.on_release(*this, kind_.context); }

  // generation << 32 | holders: one word, so that both are read and changed in one step.
  detail::modelled_atomic<std::uint64_t> word_{0};
  kind kind_{};
  void* address_ = nullptr;
  union {
    std::size_t length_ = 0;
    // Valid while nobody holds the block; shares its place, so that all members fit a cache line.
    memory_block* next_free_;
  };
};

}  // namespace cordma
