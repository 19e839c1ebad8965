#pragma once

#include "block_list.hpp"

#include <cordma/memory/memory_block.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace cordma {

class thread_caches;

/// What one thread keeps of one allocator: pieces that it freed, jemalloc's cache, blocks, and a
/// count. At most one thread at a time has it; or, when `shared`, all those that found no other,
/// and it keeps nothing.
class alignas(64) thread_cache {
 public:
  /// Every piece starts a line of the processor's cache and fills it: what a device writes shares
  /// none with its neighbours. A piece of as many lines as another can take its place.
  static constexpr std::size_t line = 64;

  /// For mallocx and dallocx: the arena, and the cache.
  [[nodiscard]] int flags() const noexcept { return flags_; }

  /// A block whose memory has room for `size` bytes, if this thread freed one of as many lines.
  [[nodiscard]] memory_block* take_piece(std::size_t size) noexcept {
    if (size > kept_lines * line) return nullptr;
    block_list<memory_block>& pieces = pieces_[(size - 1) / line];
    return pieces.empty() ? nullptr : &pieces.pop();
  }
  /// Whether it keeps a block that nobody holds any more, with its memory.
  [[nodiscard]] bool keep_piece(memory_block& block) noexcept {
    const std::size_t size = block.length();
    if (size > kept_lines * line) return false;
    block_list<memory_block>& pieces = pieces_[(size - 1) / line];
    if (pieces.size() >= kept_pieces_) return false;
    pieces.push(block);
    return true;
  }

  /// A block without memory, between two lives. \errors bad_alloc.
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
      : flags_{flags},
        shared_{shared},
        kept_blocks_{shared ? 0U : 2 * trip},
        kept_pieces_{shared ? 0U : 16U},
        pool_{from} {}

  static constexpr std::size_t trip = 32;        ///< blocks that go to or from the pool at once
  static constexpr std::size_t kept_lines = 64;  ///< of the largest piece that is kept: 4 KiB

  memory_block& refill();
  void spill(memory_block& block) noexcept;
  void flush() noexcept;

  int flags_;
  bool shared_;
  const std::size_t kept_blocks_;
  const std::size_t kept_pieces_;  ///< of each number of lines
  block_list<memory_block> blocks_;
  std::array<block_list<memory_block>, kept_lines> pieces_;
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
  memory_block::registration_function registration = nullptr;
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
  /// Gives the memory that is kept for the calling thread back to the arena.
  void flush() noexcept;
  [[nodiscard]] std::size_t in_use_bytes() const noexcept;

 private:
  struct last_used {
    std::uint64_t serial;
    thread_cache* cache;
  };
  struct thread_table;

  [[nodiscard]] thread_cache& find() noexcept;

  static constinit thread_local last_used last_of_thread;

  const std::uint64_t serial_;                      ///< never used twice, unlike an address
  const std::shared_ptr<thread_cache::pool> pool_;  ///< the threads' as well: they may outlive us
};

}  // namespace cordma
