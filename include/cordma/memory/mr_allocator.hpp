#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/memory/local_mr.hpp>
#include <cordma/verbs/access.hpp>
#include <cordma/verbs/protection_domain.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace cordma {

struct mr_allocator_options {
  /// Of every registration. Without remote access no peer reaches the memory by a key of its own.
  verbs::access access = verbs::access::local_write;
  /// Of the first chunk; each further one is twice as large, up to `chunk_bytes_max`. Powers of
  /// two, at least `mr_allocator::chunk_bytes_min`.
  std::size_t chunk_bytes = std::size_t{2} << 20;
  std::size_t chunk_bytes_max = std::size_t{64} << 20;
  /// No more is ever registered in chunks. 0: as much as the machine has,
  /// or less where there are no addresses for that (RLIMIT_AS, valgrind).
  std::size_t limit_bytes = 0;
  /// Reserved huge pages (MAP_HUGETLB) where there are some, else transparent ones.
  bool huge_pages = false;
  /// Where chunks come from; whoever touches a page first, when not set (mbind(2)).
  std::optional<unsigned> numa_node{};
  /// Chunks are backed by memory at once; registering does that anyway, but on soft0.
  bool prefault = false;
  /// Each thread keeps some of what it freed. Without, every call takes a lock: about ten times as
  /// slow, but nothing is held back.
  bool thread_caches = true;
};

/// Since the allocator was made. What goes on meanwhile may be counted in part.
struct CORDMA_EXPORT mr_allocator_counters {
  std::size_t registered_bytes = 0;  ///< in chunks, now
  std::size_t registered_bytes_peak = 0;
  std::size_t external_bytes = 0;  ///< of register_external, now
  std::size_t chunks = 0;
  std::uint64_t registrations = 0;  ///< `ibv_reg_mr` that succeeded
  std::uint64_t registrations_failed = 0;
  std::uint64_t deregistrations_refused = 0;  ///< chunks that had to be kept

  /// Of the peaks the sum: of several allocators, at least what there ever was at once.
  mr_allocator_counters& operator+=(const mr_allocator_counters& other) noexcept;
};
struct mr_allocator_statistics : mr_allocator_counters {
  std::size_t in_use_bytes = 0;  ///< of chunks, as they were asked for
};

/// Registered memory as cheap as malloc: chunks are registered once, and jemalloc divides them.
/// docs/memory.md walks through it. \thread any, all at once; destroy it last.
class CORDMA_EXPORT mr_allocator {
 public:
  static constexpr std::size_t chunk_bytes_min = std::size_t{2} << 20;
  static constexpr std::size_t limit_bytes_max = std::size_t{1} << 44;
  static constexpr std::size_t alignment_max = chunk_bytes_min;
  static constexpr std::size_t alignment_default = 64;  ///< a line of the cache

  /// Registers nothing yet. `pd` must outlive it.
  /// \errors  errc::out_of_range: an option, with its value. ENOMEM: no address space. EINVAL: no
  ///   such NUMA node. errc::not_supported: a jemalloc that cannot do what it has to.
  explicit mr_allocator(verbs::protection_domain& pd, mr_allocator_options options = {});
  /// Deregisters all chunks. Everything that was allocated must have been freed, and every request
  /// that names it completed (or its queue pair destroyed).
  ~mr_allocator();
  mr_allocator(const mr_allocator&) = delete;
  mr_allocator& operator=(const mr_allocator&) = delete;

  /// Memory with arbitrary contents.
  /// \param size_bytes  at least 1.  \param alignment  a power of two, up to `alignment_max`.
  /// \errors  errc::out_of_range: size or alignment. errc::limit_exceeded: `limit_bytes`. Those of
  ///   `verbs::memory_region`, when a chunk has to be registered: ENOMEM names RLIMIT_MEMLOCK.
  ///   Before it refuses it trims; what is in use stays as it was.
  /// \cost  about 10 ns with its freeing, up to 4 KiB, 15 beyond; now and then a lock; seldom a
  /// registration.
  [[nodiscard]] local_mr allocate_uninitialized(std::size_t size_bytes,
                                                std::size_t alignment = alignment_default);
  /// The same, all bytes 0.
  [[nodiscard]] local_mr allocate_zeroed(std::size_t size_bytes,
                                         std::size_t alignment = alignment_default);
  /// Registers memory of the program's own. It must stay mapped until what is returned is gone and
  /// the requests that name it have completed; `keepalive` is let go then, on whichever thread.
  /// \errors  errc::out_of_range: empty. Those of `verbs::memory_region`. \cost  a registration.
  [[nodiscard]] local_mr register_external(std::span<std::byte> memory,
                                           std::shared_ptr<void> keepalive = {});

  /// Deregisters chunks of which nothing is in use, as long as `keep_bytes` stay registered. What
  /// other threads' caches hold counts as in use. \thread any. \cost system calls.
  void trim(std::size_t keep_bytes = 0);

  /// \cost a lock.
  [[nodiscard]] mr_allocator_statistics statistics() const;
  /// The same without what is in use. \cost some loads, no lock.
  [[nodiscard]] mr_allocator_counters counters() const noexcept;
  [[nodiscard]] verbs::access access() const noexcept;
  [[nodiscard]] const mr_allocator_options& options() const noexcept;

 private:
  class state;
  std::unique_ptr<state> state_;
};

}  // namespace cordma
