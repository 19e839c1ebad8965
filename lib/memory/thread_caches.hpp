#pragma once

#include "memory_block_list.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace cordma {

class thread_caches;

/// What one thread keeps of one allocator: jemalloc's cache, blocks, and a count. At most one
/// thread at a time has it; or, when `shared`, all those that found no other, and it keeps nothing.
class alignas(64) thread_cache {
 public:
  /// For mallocx and dallocx: the arena, and the cache.
  [[nodiscard]] int flags() const noexcept { return flags_; }

  /// A block between two lives. \errors bad_alloc.
  [[nodiscard]] memory_block& take_block() {
    if (blocks_.empty()) [[unlikely]]
      return refill();
    return blocks_.pop();
  }
  void give_back(memory_block& block) noexcept {
    if (blocks_.size() == kept_blocks_) [[unlikely]]
      return spill(block);
    blocks_.push(block);
  }

  /// Bytes come into use, or, negative, go out of it; with another thread's, it may be.
  void count(std::ptrdiff_t bytes) noexcept {
    // Who writes alone needs no locked instruction. Release: who sees that nothing is in use sees
    // that we are through.
    if (shared_) [[unlikely]]
      in_use_.fetch_add(bytes, std::memory_order_release);
    else
      in_use_.store(in_use_.load(std::memory_order_relaxed) + bytes, std::memory_order_release);
  }

 private:
  friend class thread_caches;
  struct pool;

  thread_cache(pool& from, int flags, bool shared) noexcept
      : flags_{flags}, shared_{shared}, kept_blocks_{shared ? 0 : kept_max}, pool_{from} {}

  static constexpr std::size_t trip = 32;  ///< blocks that go to or from the pool at once
  static constexpr std::size_t kept_max = 2 * trip;

  memory_block& refill();
  void spill(memory_block& block) noexcept;

  int flags_;
  bool shared_;
  const std::size_t kept_blocks_;
  memory_block_list blocks_;
  std::atomic<std::ptrdiff_t> in_use_{0};
  pool& pool_;
  unsigned id_ = 0;  ///< jemalloc's
};

/// How an allocator's blocks are made: the arguments of memory_block::adopt.
struct block_kind {
  ibv_pd* pd;
  verbs::access access;
  memory_block::release_function on_release;
  void* context;
};

/// The thread caches of one allocator. Thread: any.
class thread_caches {
 public:
  /// Of all allocators of a process: jemalloc's numbers end there. Beyond, calls go without.
  static constexpr unsigned process_max = 4094;

  /// \param arena_flags  MALLOCX_ARENA(...). Not `enabled`: all share one that keeps nothing.
  thread_caches(int arena_flags, bool enabled, const block_kind& kind);
  /// Empties all of them; no other thread may still call. Before the arena's end.
  ~thread_caches();
  thread_caches(const thread_caches&) = delete;
  thread_caches& operator=(const thread_caches&) = delete;

  /// The calling thread's. \cost two loads and a comparison, but for a thread's first call, and for
  /// one that goes from allocator to allocator.
  [[nodiscard]] thread_cache& mine() noexcept {
    const last_used& last = last_of_thread;
    return last.serial == serial_ ? *last.cache : find();
  }
  /// Gives what jemalloc keeps for the calling thread back to the arena.
  void flush() noexcept;
  [[nodiscard]] std::size_t in_use_bytes() const noexcept;

 private:
  struct last_used {
    std::uint64_t serial;
    thread_cache* cache;
  };
  struct thread_table;

  [[nodiscard]] thread_cache& find() noexcept;

  // initial-exec: 16 bytes that dlopen finds room for, and no call to find them.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local last_used last_of_thread;

  const std::uint64_t serial_;                      ///< never used twice, unlike an address
  const std::shared_ptr<thread_cache::pool> pool_;  ///< the threads' as well: they may outlive us
};

}  // namespace cordma
