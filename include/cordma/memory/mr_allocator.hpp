#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/memory/local_mr.hpp>
#include <cordma/verbs/access.hpp>
#include <cordma/verbs/protection_domain.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

namespace cordma {

struct mr_allocator_options {
  /// Access of every registration. Without remote access no key of the memory works for a peer.
  verbs::access access = verbs::access::local_write;
  /// Size of the first chunk; each further one is twice as large, up to `chunk_bytes_max`. Both are
  /// powers of two, at least `mr_allocator::chunk_bytes_min`.
  std::size_t chunk_bytes = std::size_t{2} << 20;
  std::size_t chunk_bytes_max = std::size_t{64} << 20;
  /// Most bytes ever registered in chunks. 0: as much as the machine has, or less where addresses
  /// are short (RLIMIT_AS, valgrind).
  std::size_t limit_bytes = 0;
  /// Uses reserved huge pages (MAP_HUGETLB) where there are some, else transparent ones.
  bool huge_pages = false;
  /// NUMA node of the chunks; if unset, that of the first thread to touch a page (mbind(2)).
  std::optional<unsigned> numa_node{};
  /// Backs chunks by memory at once; registering does that anyway, except on soft0.
  bool prefault = false;
  /// Lets each thread keep some memory that it freed. Without the caches, nothing is kept back, but
  /// every call takes a lock and is about ten times as slow.
  bool thread_caches = true;
  /// Most registrations that `register_cached` keeps, and most bytes of them.
  std::size_t cached_registrations_max = 1024;
  std::size_t cached_bytes_max = std::size_t{1} << 30;
};

/// Counters since the allocator was made. Concurrent work may be counted in part.
struct CORDMA_EXPORT mr_allocator_counters {
  std::size_t registered_bytes = 0;  ///< now, in chunks
  std::size_t registered_bytes_peak = 0;
  std::size_t external_bytes = 0;  ///< now, of memory of the program's own, cached or not
  std::size_t cached_bytes = 0;    ///< now, of registrations that the cache keeps
  std::size_t chunks = 0;
  std::uint64_t registrations = 0;  ///< successful calls of `ibv_reg_mr`
  std::uint64_t registrations_failed = 0;
  std::uint64_t deregistrations_refused = 0;  ///< chunks that had to be kept
  std::uint64_t cache_hits = 0;               ///< calls of `register_cached` that found one
  std::uint64_t cache_misses = 0;
  std::uint64_t cache_evictions = 0;  ///< cached registrations that went for want of room

  /// Adds counters, and also peaks: the sum is an upper bound for the peak of several allocators.
  mr_allocator_counters& operator+=(const mr_allocator_counters& other) noexcept;
};
struct mr_allocator_statistics : mr_allocator_counters {
  std::size_t in_use_bytes = 0;  ///< memory in use, in the sizes requested
};

/// Allocates registered memory as cheaply as malloc: chunks are registered once, and jemalloc
/// divides them. docs/memory.md explains the design. Destroy the allocator last. \thread any, all
/// at once.
class CORDMA_EXPORT mr_allocator {
 public:
  static constexpr std::size_t chunk_bytes_min = std::size_t{2} << 20;
  static constexpr std::size_t limit_bytes_max = std::size_t{1} << 44;
  static constexpr std::size_t alignment_max = chunk_bytes_min;
  static constexpr std::size_t alignment_default = 64;  ///< a cache line

  /// Makes an allocator that has registered nothing yet. `pd` must outlive it.
  /// \errors  errc::out_of_range: an option, with its value. ENOMEM: no address space. EINVAL: no
  ///   such NUMA node. errc::not_supported: a jemalloc that lacks a required feature.
  explicit mr_allocator(verbs::protection_domain& pd, mr_allocator_options options = {});
  /// Deregisters all chunks. All allocated memory must have been freed, and every request that
  /// names it completed (or its queue pair destroyed).
  ~mr_allocator();
  mr_allocator(mr_allocator&&) = delete;

  /// Allocates memory with arbitrary contents.
  /// \param size_bytes  at least 1.  \param alignment  a power of two, up to `alignment_max`.
  /// \errors  errc::out_of_range: size or alignment. errc::limit_exceeded: `limit_bytes`. Those of
  ///   `verbs::memory_region`, when a chunk has to be registered: ENOMEM names RLIMIT_MEMLOCK. The
  ///   allocator trims before it fails; memory in use stays as it was.
  /// \cost  about 10 ns with its freeing, up to 4 KiB, 15 beyond; now and then a lock; seldom a
  ///   registration.
  [[nodiscard]] local_mr allocate_uninitialized(std::size_t size_bytes,
                                                std::size_t alignment = alignment_default);
  /// Allocates memory with all bytes 0.
  [[nodiscard]] local_mr allocate_zeroed(std::size_t size_bytes,
                                         std::size_t alignment = alignment_default);
  /// Registers memory of the program's own. The memory must stay mapped until the returned object
  /// is gone and the requests that name it have completed. `keepalive` is then destroyed, on any
  /// thread.
  /// \errors  errc::out_of_range: empty. Those of `verbs::memory_region`.
  /// \cost  a registration.
  [[nodiscard]] local_mr register_external(std::span<std::byte> memory,
                                           std::shared_ptr<void> keepalive = {});
  /// Registers constant memory, which device and peers only read.
  template <class Bytes>
    requires(std::convertible_to<Bytes, std::span<const std::byte>> &&
             !std::convertible_to<Bytes, std::span<std::byte>>)
  [[nodiscard]] const_local_mr register_external(Bytes&& memory,
                                                 std::shared_ptr<void> keepalive = {}) {
    return register_constant(memory, std::move(keepalive));
  }
  /// Registers `size_bytes` of a dma-buf from `offset` on. `fd` may be closed afterwards. `bytes()`
  /// is the memory if the descriptor can be mapped, else addresses that only requests may use.
  /// \errors  errc::out_of_range: empty. Those of `verbs::memory_region`: EBADF, EINVAL,
  ///   errc::not_supported. A request on memory that has gone ends with `wc_errc`.
  /// \cost  a registration. Requests never read it inline.
  [[nodiscard]] local_mr register_dmabuf(int fd, std::uint64_t offset, std::size_t size_bytes);

  /// Returns a hold on a registration of the program's own memory. The cache keeps the registration
  /// for the next call that names the same bytes or a part. Held ones stay. The least recently used
  /// goes above `cached_bytes_max` or `cached_registrations_max`. If all are held, the new one ends
  /// with its hold. Call `invalidate` before the memory is unmapped.
  /// \errors  as `register_external`.
  /// \cost  a hit: a lock and a search, no allocation. A miss: a registration. Requests never read
  ///   such memory inline.
  [[nodiscard]] local_mr register_cached(std::span<std::byte> memory);
  /// Returns a hold on constant memory, in the same way.
  template <class Bytes>
    requires(std::convertible_to<Bytes, std::span<const std::byte>> &&
             !std::convertible_to<Bytes, std::span<std::byte>>)
  [[nodiscard]] const_local_mr register_cached(Bytes&& memory) {
    return register_cached_constant(memory);
  }
  /// Drops cached registrations of any part of `range`, whose memory will be unmapped or freed.
  /// Slices of it are stale from now on. Returns how many registrations are still held. Each ends
  /// with its last hold or request in flight. \thread any, but not while another thread registers
  /// that memory. \cost a lock, a look at all cached registrations, system calls.
  std::size_t invalidate(std::span<const std::byte> range) noexcept;

  /// Deregisters unused chunks while more than `keep_bytes` stay registered in chunks, and cached
  /// registrations that nobody holds. Memory in other threads' caches counts as used. \thread any.
  /// \cost system calls.
  void trim(std::size_t keep_bytes = 0);

  /// Returns the counters and the bytes in use. \cost a lock.
  [[nodiscard]] mr_allocator_statistics statistics() const;
  /// Returns the statistics without the bytes in use. \cost some loads, no lock.
  [[nodiscard]] mr_allocator_counters counters() const noexcept;
  [[nodiscard]] verbs::access access() const noexcept;
  [[nodiscard]] const mr_allocator_options& options() const noexcept;

 private:
  [[nodiscard]] const_local_mr register_constant(std::span<const std::byte> memory,
                                                 std::shared_ptr<void> keepalive);
  [[nodiscard]] const_local_mr register_cached_constant(std::span<const std::byte> memory);

  class state;
  std::unique_ptr<state> state_;
};

}  // namespace cordma
