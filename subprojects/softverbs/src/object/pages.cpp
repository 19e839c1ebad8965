#include "object/pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace softverbs {
namespace {

// Initialized while the library is loaded: a fork during a later initialization could leave the
// guard of a static locked in the child.

const bool is_known = [] {
  void* own = ::mmap(nullptr, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) return false;
  const bool known = ::madvise(own, 1, MADV_POPULATE_READ) == 0;
  ::munmap(own, 1);
  return known;
}();

}  // namespace

bool can_populate() noexcept { return is_known; }

bool populate(std::byte* at, std::uint64_t bytes, bool writes) noexcept {
  const std::uintptr_t before = reinterpret_cast<std::uintptr_t>(at) % page_bytes;
  return ::madvise(at - before, bytes + before,
                   writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0;
}

}  // namespace softverbs
