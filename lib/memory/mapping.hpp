#pragma once

#include "base/spare_memory.hpp"

#include <cordma/memory/mr_allocator.hpp>

#include <cstddef>

namespace cordma {

/// A range of addresses, kept from construction to destruction; memory is committed and decommitted
/// in it.
class mapping {
 public:
  /// \param alignment  of the first address; a power of two. \errors ENOMEM of mmap.
  mapping(std::size_t bytes, std::size_t alignment);
  ~mapping();
  mapping(mapping&&) = delete;

  /// Returns true if such a range can be reserved now: not under a low RLIMIT_AS, or in valgrind.
  [[nodiscard]] static bool is_possible(std::size_t bytes, std::size_t alignment) noexcept;

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes_; }

  /// Backs a part with zeroed memory, in pages as `options` ask for. \errors those of mprotect(2),
  /// mbind(2), madvise(2).
  void commit(std::byte* at, std::size_t bytes, const mr_allocator_options& options);
  /// Returns the memory of a part to the system, or keeps it for a later mapping (spare_memory),
  /// and keeps its addresses. Works at any limit.
  void decommit(std::byte* at, std::size_t bytes) noexcept;
  /// Keeps the addresses mapped from now on, also after the destruction.
  void keep() noexcept { whole_ = nullptr; }

 private:
  std::byte* whole_ = nullptr;
  std::size_t whole_bytes_;
  std::byte* base_ = nullptr;
  std::size_t bytes_;
  detail::spare_memory* spare_ = detail::spare_memory::current();  ///< null: none
};

/// Checks a node. \errors EINVAL (errno of mbind) when there is no such node.
void check_numa_node(unsigned node);

}  // namespace cordma
