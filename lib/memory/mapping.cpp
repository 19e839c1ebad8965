#include "mapping.hpp"

#include "annotations.hpp"

#include <cordma/base/error.hpp>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <linux/mempolicy.h>

namespace cordma {
namespace {

constexpr int reserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
constexpr int read_write = PROT_READ | PROT_WRITE;
constexpr std::size_t page_bytes = 4096;

/// Binds memory to a node with one system call, which saves a dependency on libnuma.
bool bind_to(void* at, std::size_t bytes, unsigned node) noexcept {
  constexpr unsigned word_bits = 64;
  constexpr unsigned nodes_max = 1024;  // The kernel's largest MAX_NUMNODES.
  std::uint64_t mask[nodes_max / word_bits]{};
  if (node >= nodes_max) {
    errno = EINVAL;
    return false;
  }
  mask[node / word_bits] = std::uint64_t{1} << (node % word_bits);
  // The count is one more than there are nodes: the kernel ignores the last bit (mbind(2), BUGS).
  return ::syscall(SYS_mbind, at, bytes, MPOL_BIND, mask, nodes_max + 1, 0) == 0;
}

/// Touches pages. Returns false, with errno, if there is no memory.
bool prefault(std::byte* at, std::size_t bytes) noexcept {
  if (::madvise(at, bytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
  // Linux before 5.14 needs the pages touched one by one.
  for (std::size_t page = 0; page < bytes; page += page_bytes)
    *const_cast<volatile std::byte*>(at + page) = std::byte{0};
  return true;
}

/// Zeroes the pages that were touched. Returns false if that is refused.
bool clear(std::byte* at, std::size_t bytes) noexcept {
  std::array<unsigned char, 512> is_there;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t part = std::min(bytes - done, is_there.size() * page_bytes);
    if (::mincore(at + done, part, is_there.data()) != 0) return false;
    for (std::size_t page = 0; page < part / page_bytes; ++page)
      if ((is_there[page] & 1) != 0) std::memset(at + done + page * page_bytes, 0, page_bytes);
    done += part;
  }
  poison(at, bytes);
  return true;
}

/// Maps huge pages elsewhere and moves them into place: a failed MAP_FIXED leaves a hole, into
/// which anybody may map.
bool map_huge(std::byte* at, std::size_t bytes) noexcept {
  void* const pages =
      ::mmap(nullptr, bytes, read_write, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (pages == MAP_FAILED) return false;
  if (::mremap(pages, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at) return true;
  ::munmap(pages, bytes);  // Linux before 5.16 does not move huge pages.
  return false;
}

}  // namespace

bool mapping::is_possible(std::size_t bytes, std::size_t alignment) noexcept {
  void* const whole = ::mmap(nullptr, bytes + alignment, PROT_NONE, reserved, -1, 0);
  return whole != MAP_FAILED && ::munmap(whole, bytes + alignment) == 0;
}

mapping::mapping(std::size_t bytes, std::size_t alignment)
    : whole_bytes_{bytes + alignment}, bytes_{bytes} {
  void* whole = spare_ != nullptr ? spare_->take(whole_bytes_) : nullptr;
  if (whole == nullptr) whole = ::mmap(nullptr, whole_bytes_, PROT_NONE, reserved, -1, 0);
  if (whole == MAP_FAILED) {
    throw error{errno_failure(errno, "mmap", {"bytes", whole_bytes_},
                              "no such range of addresses: lower limit_bytes")};
  }
  whole_ = static_cast<std::byte*>(whole);
  const auto address = reinterpret_cast<std::uintptr_t>(whole_);
  base_ = whole_ + ((address + alignment - 1) / alignment * alignment - address);
}

mapping::~mapping() {
  if (whole_ == nullptr) return;
  if (spare_ != nullptr) {
    if (spare_->give(whole_, whole_bytes_)) return;
    unpoison(whole_, whole_bytes_);
  }
  // At vm.max_map_count, unmapping between two neighbours fails: the addresses stay, without
  // memory.
  ::munmap(whole_, whole_bytes_);
}

void mapping::commit(std::byte* at, std::size_t bytes, const mr_allocator_options& options) {
  if (options.huge_pages || options.numa_node) spare_ = nullptr;  // Later mappings may want others.
  unpoison(at, bytes);
  const char* call = "mprotect";
  const char* way_out = "this process may have no more mappings: raise vm.max_map_count (sysctl)";
  bool done = (options.huge_pages && map_huge(at, bytes)) || ::mprotect(at, bytes, read_write) == 0;
  // Uses transparent huge pages, where there are some.
  if (done && options.huge_pages) ::madvise(at, bytes, MADV_HUGEPAGE);
  if (done && options.numa_node) {
    call = "mbind";
    done = bind_to(at, bytes, *options.numa_node);
  }
  if (done && options.prefault) {
    call = "madvise(MADV_POPULATE_WRITE)";
    way_out = "";
    done = prefault(at, bytes);
  }
  if (done) return;
  const int error = errno;
  spare_ = nullptr;
  decommit(at, bytes);
  throw cordma::error{errno_failure(error, call, {"bytes", bytes}, error == ENOMEM ? way_out : "")};
}

void mapping::decommit(std::byte* at, std::size_t bytes) noexcept {
  if (spare_ != nullptr && clear(at, bytes)) return;
  // A new mapping keeps nothing of huge pages and nodes.
  if (::mmap(at, bytes, PROT_NONE, reserved | MAP_FIXED, -1, 0) == at) return;
  // The new mapping failed: RLIMIT_AS was lowered, or vm.max_map_count is reached. Calls that make
  // no mapping still work, and commit() takes the range as it finds it.
  ::madvise(at, bytes, MADV_DONTNEED);
  ::mprotect(at, bytes, PROT_NONE);
}

void check_numa_node(unsigned node) {
  const mapping page{page_bytes, page_bytes};
  if (bind_to(page.base(), page_bytes, node)) return;
  throw error{errno_failure(errno, "mbind", {"node", node},
                            errno == EINVAL ? "no such NUMA node" : "mbind is not allowed here")};
}

}  // namespace cordma
