#include "wire/ring.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace softverbs {

namespace {

/// The mapped size of a ring: the control page, then the data twice.
constexpr std::size_t span_bytes = ring_control_bytes + 2 * ring_bytes;
constexpr std::size_t spans_bytes = 2 * span_bytes;
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

/// Replaces a mapping atomically. ThreadSanitizer takes mmap() for a write to all the memory, while
/// other threads may read a control page. The function thus makes the raw system call.
bool replace(std::byte* address, std::size_t bytes, int flags, int fd,
             std::size_t offset) noexcept {
  return ::syscall(SYS_mmap, address, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd,
                   static_cast<off_t>(offset)) != -1;
}

bool map_at(std::byte* address, std::size_t bytes, int fd, std::size_t offset) noexcept {
  return replace(address, bytes, MAP_SHARED, fd, offset);
}

bool map_ring(std::byte* address, int fd, std::size_t offset) noexcept {
  return map_at(address, ring_file_bytes, fd, offset) &&
         map_at(address + ring_file_bytes, ring_bytes, fd, offset + ring_control_bytes);
}

}  // namespace

ring_memory::~ring_memory() {
  if (base_ != nullptr) ::munmap(base_, spans_bytes);
}

int ring_memory::create_file() noexcept {
  const int fd = ::memfd_create("softverbs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  if (::ftruncate(fd, static_cast<off_t>(rings_file_bytes)) == 0 &&
      ::fcntl(fd, F_ADD_SEALS, seals) == 0)
    return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

bool ring_memory::is_valid(int fd) noexcept {
  struct stat status{};
  const int present = ::fcntl(fd, F_GET_SEALS);
  return present >= 0 && (present & seals) == seals && ::fstat(fd, &status) == 0 &&
         S_ISREG(status.st_mode) && status.st_size == static_cast<off_t>(rings_file_bytes);
}

bool ring_memory::reserve() noexcept {
  if (base_ != nullptr) return true;
  void* address = ::mmap(nullptr, spans_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return false;
  ::madvise(address, spans_bytes, MADV_DONTFORK);
  base_ = static_cast<std::byte*>(address);
  return true;
}

bool ring_memory::map(int fd, bool opener) noexcept {
  const bool mapped = map_ring(base_, fd, opener ? 0 : ring_file_bytes) &&
                      map_ring(base_ + span_bytes, fd, opener ? ring_file_bytes : 0);
  ::madvise(base_, spans_bytes, MADV_DONTFORK);
  if (!mapped) unmap();
  return mapped;
}

void ring_memory::unmap() noexcept {
  if (base_ == nullptr) return;
  (void)replace(base_, spans_bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ::madvise(base_, spans_bytes, MADV_DONTFORK);
}

ring_view ring_memory::view(std::size_t which) const noexcept {
  std::byte* address = base_ + which * span_bytes;
  return {reinterpret_cast<ring_control*>(address), address + ring_control_bytes, 0};
}

}  // namespace softverbs
