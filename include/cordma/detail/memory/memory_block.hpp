#pragma once

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

/// What stands behind every slice of one piece of registered memory: how many hold it, and which of
/// its lives it is in. Blocks are reused, never unmapped, so a slice of memory that was freed long
/// ago can still be asked whether it is stale. \thread any.
class alignas(64) memory_block {
 public:
  /// Called once in a life, by whoever lets go last, on its thread: frees the memory, and ends with
  /// `recycle` or keeps the block for another life.
  using release_function = void (*)(memory_block&, void* context) noexcept;
  /// The registration that the memory is part of.
  using registration_function = const verbs::memory_region& (*)(const memory_block&,
                                                                void* context) noexcept;

  /// A block that nobody holds before `begin`. \errors bad_alloc. \cost a mutex.
  static memory_block& adopt(ibv_pd* pd, verbs::access access, release_function on_release,
                             void* context, registration_function registration = nullptr);
  /// A new life with one holder, the owner, of this memory. \cost a few stores.
  void begin(void* address, std::size_t length) noexcept {
    address_ = address;
    length_ = length;
    // Nobody holds it, and a stale slice changes nothing: one writer. Release: a slice that reaches
    // another thread is checked against this word first.
    word_.store(word_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  /// The end of adoption, between two lives.
  static void recycle(memory_block& block) noexcept;
  /// Both: a block with one holder.
  static memory_block& make(ibv_pd* pd, verbs::access access, release_function on_release,
                            void* context, registration_function registration = nullptr);

  // What `begin` was told, for `on_release`.
  [[nodiscard]] void* address() const noexcept { return address_; }
  [[nodiscard]] std::size_t length() const noexcept { return length_; }

  [[nodiscard]] std::uint32_t generation() const noexcept {
    return std::uint32_t(word_.load(std::memory_order_relaxed) >> 32);
  }
  [[nodiscard]] const ibv_pd* pd() const noexcept { return pd_; }
  [[nodiscard]] verbs::access access() const noexcept { return access_; }
  /// Of memory that is held. Null: nobody can tell.
  [[nodiscard]] const verbs::memory_region* registration() const noexcept {
    return registration_ == nullptr ? nullptr : &registration_(*this, context_);
  }
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
  /// One more holder, of memory that somebody holds.
  void hold() noexcept { word_.fetch_add(1, std::memory_order_relaxed); }
  [[gnu::always_inline]] void let_go() noexcept {
    // Release: our use of the memory comes before its end. Acquire, in the last: so does theirs.
    if (std::uint32_t(word_.fetch_sub(1, std::memory_order_acq_rel)) == 1) end_life();
  }
  /// The owner's letting go: from here on slices are stale; requests in flight keep the memory.
  void give_up() noexcept {
    constexpr std::uint64_t next_generation_one_less = (std::uint64_t{1} << 32) - 1;
    if (std::uint32_t(word_.fetch_add(next_generation_one_less, std::memory_order_acq_rel)) == 1)
      end_life();
  }

 private:
  friend class block_list<memory_block>;
  void end_life() noexcept { on_release_(*this, context_); }

  std::atomic<std::uint64_t> word_{0};  // generation << 32 | holders: one word, so that both are
                                        // looked at and changed in one step.
  ibv_pd* pd_ = nullptr;
  verbs::access access_ = verbs::access::none;
  release_function on_release_ = nullptr;
  void* context_ = nullptr;
  registration_function registration_ = nullptr;
  void* address_ = nullptr;
  union {
    std::size_t length_ = 0;
    memory_block* next_free_;  // Of a block that nobody holds: so that all fit into a line.
  };
};

}  // namespace cordma
