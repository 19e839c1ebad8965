#include "mapping.hpp"

#include <cordma/base/error.hpp>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include <linux/mempolicy.h>

namespace cordma {
namespace {

constexpr int reserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
constexpr int read_write = PROT_READ | PROT_WRITE;
constexpr std::size_t page_bytes = 4096;

/// libnuma has it; one system call is not worth a library.
bool bind_to(void* at, std::size_t bytes, unsigned node) noexcept {
  constexpr unsigned word_bits = 64;
  constexpr unsigned nodes_max = 1024;  // As the kernel's largest MAX_NUMNODES.
  std::uint64_t mask[nodes_max / word_bits]{};
  if (node >= nodes_max) {
    errno = EINVAL;
    return false;
  }
  mask[node / word_bits] = std::uint64_t{1} << (node % word_bits);
  // One more than there are: the kernel takes the last bit for no part of it (mbind(2), BUGS).
  return ::syscall(SYS_mbind, at, bytes, MPOL_BIND, mask, nodes_max + 1, 0) == 0;
}

/// False, with errno: the pages cannot be had.
bool prefault(std::byte* at, std::size_t bytes) noexcept {
  if (::madvise(at, bytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
  // Linux before 5.14.
  for (std::size_t page = 0; page < bytes; page += page_bytes)
    *const_cast<volatile std::byte*>(at + page) = std::byte{0};
  return true;
}

/// Huge pages move to their place: a MAP_FIXED that fails leaves a hole, for anybody to map into.
bool map_huge(std::byte* at, std::size_t bytes) noexcept {
  void* const pages =
      ::mmap(nullptr, bytes, read_write, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (pages == MAP_FAILED) return false;
  if (::mremap(pages, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at) return true;
  ::munmap(pages, bytes);  // Linux before 5.16 does not move them.
  return false;
}

}  // namespace

bool mapping::is_possible(std::size_t bytes, std::size_t alignment) noexcept {
  void* const whole = ::mmap(nullptr, bytes + alignment, PROT_NONE, reserved, -1, 0);
  return whole != MAP_FAILED && ::munmap(whole, bytes + alignment) == 0;
}

mapping::mapping(std::size_t bytes, std::size_t alignment)
    : whole_bytes_{bytes + alignment}, bytes_{bytes} {
  void* const whole = ::mmap(nullptr, whole_bytes_, PROT_NONE, reserved, -1, 0);
  if (whole == MAP_FAILED) {
    throw error{errno_failure(errno, "mmap", {"bytes", whole_bytes_},
                              "no such range of addresses: lower limit_bytes")};
  }
  whole_ = static_cast<std::byte*>(whole);
  const auto address = reinterpret_cast<std::uintptr_t>(whole_);
  base_ = whole_ + ((address + alignment - 1) / alignment * alignment - address);
}

mapping::~mapping() {
  // Refused between two neighbours when vm.max_map_count is reached: addresses without memory stay.
  if (whole_ != nullptr) ::munmap(whole_, whole_bytes_);
}

void mapping::commit(std::byte* at, std::size_t bytes, const page_wish& wish) {
  const char* call = "mprotect";
  const char* way_out = "this process may have no more mappings: raise vm.max_map_count (sysctl)";
  bool done = (wish.huge && map_huge(at, bytes)) || ::mprotect(at, bytes, read_write) == 0;
  if (done && wish.huge) ::madvise(at, bytes, MADV_HUGEPAGE);  // Where there are transparent ones.
  if (done && wish.numa_node) {
    call = "mbind";
    done = bind_to(at, bytes, *wish.numa_node);
  }
  if (done && wish.prefault) {
    call = "madvise(MADV_POPULATE_WRITE)";
    way_out = "";
    done = prefault(at, bytes);
  }
  if (done) return;
  const int error = errno;
  decommit(at, bytes);
  throw cordma::error{errno_failure(error, call, {"bytes", bytes}, error == ENOMEM ? way_out : "")};
}

void mapping::decommit(std::byte* at, std::size_t bytes) noexcept {
  // A new mapping keeps nothing of huge pages and nodes.
  if (::mmap(at, bytes, PROT_NONE, reserved | MAP_FIXED, -1, 0) == at) return;
  // RLIMIT_AS was lowered, or vm.max_map_count is reached. Neither forbids what makes no mapping,
  // and commit() takes the range as it finds it.
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
