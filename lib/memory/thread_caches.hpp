#pragma once

#include "block_list.hpp"

#include <cordma/detail/memory/memory_block.hpp>

#include <array>
#include <atomic>
#include <bit>
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
  /// none with its neighbours.
  static constexpr std::size_t line = 64;
  /// What a piece of `size` bytes is made of: whole lines, and from 4 KiB to 1 MiB one of four
  /// sizes to each doubling, which are jemalloc's own. A piece takes the place of another that is
  /// made of as many bytes.
  [[nodiscard]] static constexpr std::size_t room(std::size_t size) noexcept {
    const bool by_quarters = size > by_lines && size <= kept_bytes;
    const std::size_t step = by_quarters ? std::bit_floor(size - 1) / 4 : line;
    return (size + step - 1) & ~(step - 1);
  }

  /// For mallocx and dallocx: the arena, and the cache.
  [[nodiscard]] int flags() const noexcept { return flags_; }

  /// A block whose memory has room for `size` bytes, if this thread freed one of as much room.
  [[nodiscard]] memory_block* take_piece(std::size_t size) noexcept {
    if (size > kept_bytes) return nullptr;
    block_list<memory_block>& pieces = pieces_[index(size)];
    return pieces.empty() ? nullptr : &pieces.pop();
  }
  /// Whether it keeps a block that nobody holds any more, with its memory.
  [[nodiscard]] bool keep_piece(memory_block& block) noexcept {
    const std::size_t size = block.length();
    if (size > kept_bytes || shared_) return false;
    block_list<memory_block>& pieces = pieces_[index(size)];
    if (pieces.size() == most(size)) return false;
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
      : flags_{flags}, shared_{shared}, kept_blocks_{shared ? 0U : 2 * trip}, pool_{from} {}

  static constexpr std::size_t trip = 32;  ///< blocks that go to or from the pool at once
  static constexpr std::size_t by_lines = std::size_t{4} << 10;
  static constexpr std::size_t kept_bytes = std::size_t{1} << 20;  ///< of the largest that is kept
  static constexpr std::size_t kept_sizes = 64 + 4 * 8;

  /// How many pieces of a size are kept: about 10 MiB of all.
  [[nodiscard]] static constexpr std::size_t most(std::size_t size) noexcept {
    return size <= by_lines ? 16 : size <= std::size_t{64} << 10 ? 4 : 1;
  }
  /// Which of the sizes a piece has that is not larger than `kept_bytes`.
  [[nodiscard]] static constexpr std::size_t index(std::size_t size) noexcept {
    if (size <= by_lines) return (size - 1) / line;
    const auto doubling = std::size_t(std::bit_width(size - 1));  // 13 above 4 KiB.
    return 64 + 4 * (doubling - 13) + ((size - 1) >> (doubling - 3)) - 4;
  }

  memory_block& refill();
  void spill(memory_block& block) noexcept;
  void flush() noexcept;

  int flags_;
  bool shared_;
  const std::size_t kept_blocks_;
  block_list<memory_block> blocks_;
  std::array<block_list<memory_block>, kept_sizes> pieces_;
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
