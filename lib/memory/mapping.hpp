#pragma once

#include <cstddef>
#include <optional>

namespace cordma {

/// How the pages of a chunk are to be.
struct page_wish {
  bool huge = false;
  std::optional<unsigned> numa_node{};
  bool prefault = false;
};

/// A range of addresses, kept from construction to destruction; memory comes and goes in it.
class mapping {
 public:
  /// \param alignment  of the first address; a power of two. \errors ENOMEM of mmap.
  mapping(std::size_t bytes, std::size_t alignment);
  ~mapping();
  mapping(const mapping&) = delete;
  mapping& operator=(const mapping&) = delete;

  /// Whether there is such a range now: not under a low RLIMIT_AS, or in valgrind.
  [[nodiscard]] static bool is_possible(std::size_t bytes, std::size_t alignment) noexcept;

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes_; }

  /// Backs a part with zeroed memory. \errors those of mprotect(2), mbind(2), madvise(2).
  void commit(std::byte* at, std::size_t bytes, const page_wish& wish);
  /// Gives the memory of a part back to the system, not its addresses. Works at any limit.
  void decommit(std::byte* at, std::size_t bytes) noexcept;
  /// From now on the addresses stay what they are, also after the destruction.
  void keep() noexcept { whole_ = nullptr; }

 private:
  std::byte* whole_ = nullptr;
  std::size_t whole_bytes_;
  std::byte* base_ = nullptr;
  std::size_t bytes_;
};

/// Throws EINVAL (errno of mbind) when there is no such node.
void check_numa_node(unsigned node);

}  // namespace cordma
