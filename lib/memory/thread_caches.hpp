#pragma once

#include "block_list.hpp"
#include "bytes_in_use.hpp"

#include <cordma/detail/memory/memory_block.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace cordma {

class thread_caches;

/// One thread's cache of one allocator: pieces that it freed, jemalloc's cache, blocks, and a
/// count. One thread at a time owns a cache. A `shared` cache serves all threads that found no
/// other, and keeps nothing.
class alignas(64) thread_cache {
 public:
  /// Every piece starts on a cache line and fills whole lines, so that what a device writes shares
  /// none with its neighbours.
  static constexpr std::size_t line = 64;
  /// Returns the bytes of a piece for `size` bytes. Sizes are whole lines; from 4 KiB to 1 MiB, one
  /// of jemalloc's four sizes per doubling. A piece can replace any other of equal room.
  [[nodiscard]] static constexpr std::size_t room(std::size_t size) noexcept {
    const bool by_quarters = size > by_lines && size <= kept_bytes;
    const std::size_t step = by_quarters ? std::bit_floor(size - 1) / 4 : line;
    return (size + step - 1) & ~(step - 1);
  }

  /// Returns the flags for mallocx and dallocx: the arena, and the cache.
  [[nodiscard]] int flags() const noexcept { return flags_; }

  /// Takes a block that has room for `size` bytes, if this thread freed one of that room.
  [[nodiscard]] memory_block* take_piece(std::size_t size) noexcept {
    if (size > kept_bytes) return nullptr;
    block_list<memory_block>& pieces = pieces_[index(size)];
    return pieces.empty() ? nullptr : &pieces.pop();
  }
  /// Keeps a block that nobody holds any more, with its memory. Returns false if it cannot.
  [[nodiscard]] bool keep_piece(memory_block& block) noexcept {
    const std::size_t size = block.length();
    if (size > kept_bytes || shared_) return false;
    block_list<memory_block>& pieces = pieces_[index(size)];
    if (pieces.size() == most(size)) return false;
    pieces.push(block);
    return true;
  }

  /// Takes a block without memory, between two generations. \errors bad_alloc.
  [[nodiscard]] memory_block& take_block() {
    if (shared_) return memory_block::adopt(blocks_of_);
    if (blocks_.empty()) [[unlikely]]
      memory_block::adopt(blocks_of_, blocks_, trip);
    return blocks_.pop();
  }
  void give_back(memory_block& block) noexcept {
    if (shared_) return memory_block::recycle(block);
    blocks_.push(block);
    if (blocks_.size() > 2 * trip) [[unlikely]]
      memory_block::recycle(blocks_, trip);
  }

  /// Counts bytes as used, or, negative, as freed; another thread may have counted them as used.
  void count(std::ptrdiff_t bytes) noexcept {
    if (shared_) [[unlikely]]
      in_use_.add_shared(bytes);
    else
      in_use_.add(bytes);
  }

 private:
  friend class thread_caches;
  struct pool;

  thread_cache(const memory_block::kind& of, int flags, bool shared) noexcept
      : flags_{flags}, shared_{shared}, blocks_of_{of} {}

  static constexpr std::size_t trip = 32;  ///< blocks that move to or from the slab at once

  static constexpr std::size_t by_lines = std::size_t{4} << 10;
  static constexpr std::size_t kept_bytes = std::size_t{1} << 20;  ///< largest piece that is kept
  static constexpr std::size_t kept_sizes = 64 + 4 * 8;

  /// Returns how many pieces of a size are kept: about 10 MiB in all.
  [[nodiscard]] static constexpr std::size_t most(std::size_t size) noexcept {
    return size <= by_lines ? 16 : size <= std::size_t{64} << 10 ? 4 : 1;
  }
  /// Returns the index of the size class of a piece of at most `kept_bytes`.
  [[nodiscard]] static constexpr std::size_t index(std::size_t size) noexcept {
    if (size <= by_lines) return (size - 1) / line;
    const auto doubling = std::size_t(std::bit_width(size - 1));  // 13 above 4 KiB.
    return 64 + 4 * (doubling - 13) + ((size - 1) >> (doubling - 3)) - 4;
  }

  void flush() noexcept;

  int flags_;
  bool shared_;
  block_list<memory_block> blocks_;
  std::array<block_list<memory_block>, kept_sizes> pieces_;
  bytes_in_use in_use_;
  const memory_block::kind& blocks_of_;
  unsigned id_ = 0;  ///< jemalloc's identifier
};

/// The thread caches of one allocator. \thread any.
class thread_caches {
 public:
  /// Most caches of all allocators of a process: jemalloc has no more. Further threads use none.
  static constexpr unsigned process_max = 4094;

  /// \param arena_flags  MALLOCX_ARENA(...). \param enabled  false: all threads share one cache
  ///   that keeps nothing.
  thread_caches(int arena_flags, bool enabled, const memory_block::kind& of);
  /// Empties all caches, before the arena's end; no other thread may still call.
  ~thread_caches();
  thread_caches(thread_caches&&) = delete;

  /// Returns the calling thread's cache. \cost two loads and a comparison. More for a thread's
  /// first call, and for a thread that alternates between allocators.
  [[nodiscard]] thread_cache& mine() noexcept {
    const last_used& last = last_of_thread;
    return last.serial == serial_ ? *last.cache : find();
  }
  /// Returns the memory kept for the calling thread to the arena.
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

  const std::uint64_t serial_;  ///< never used twice, unlike an address
  /// shared with the threads, which may outlive the allocator
  const std::shared_ptr<thread_cache::pool> pool_;
};

}  // namespace cordma
