#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace cordma::test {

/// Tells whether there is memory behind an address.
inline bool is_resident(std::byte* at) {
  unsigned char one = 0;
  return ::mincore(at - std::uintptr_t(at) % 4096, 1, &one) == 0 && (one & 1) != 0;
}

/// Takes as many mappings as this process may have.
class all_mappings {
 public:
  all_mappings() : all_{static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_NONE, kind, -1, 0))} {
    fill();
  }
  /// Takes those that were given back meanwhile, too.
  void fill() {
    // Every other page is of another kind, so that each is a mapping.
    while (next_ < bytes && ::mprotect(all_ + next_, page, PROT_READ) == 0) next_ += 2 * page;
  }
  void end() { ::munmap(all_, bytes); }
  [[nodiscard]] bool are_taken() const noexcept { return next_ < bytes; }

 private:
  static constexpr int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  static constexpr std::size_t page = 4096;
  static constexpr std::size_t bytes = std::size_t{1} << 30;
  std::byte* all_;
  std::size_t next_ = page;
};

}  // namespace cordma::test
