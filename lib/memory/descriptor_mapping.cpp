#include "descriptor_mapping.hpp"

#include <cordma/base/error.hpp>

#include <sys/mman.h>
#include <sys/stat.h>

#include <bit>
#include <cerrno>

namespace cordma {
namespace {

constexpr std::size_t small_page = 4096;

/// Returns the unit in which a descriptor is mapped: a file of huge pages gives their size here.
std::size_t unit_of(int fd) noexcept {
  struct stat file{};
  if (::fstat(fd, &file) != 0 || file.st_blksize <= 0) return small_page;
  const auto unit = std::size_t(file.st_blksize);
  return unit > small_page && std::has_single_bit(unit) ? unit : small_page;
}

}  // namespace

descriptor_mapping::descriptor_mapping(int fd, std::uint64_t offset, std::size_t bytes,
                                       bool is_writable) {
  const std::size_t unit = unit_of(fd);
  skipped_bytes_ = std::size_t(offset % unit);
  whole_bytes_ = (skipped_bytes_ + bytes + unit - 1) / unit * unit;
  const int protection = is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* at = ::mmap(nullptr, whole_bytes_, protection, MAP_SHARED, fd,
                    static_cast<off_t>(offset - skipped_bytes_));
  is_mapped_ = at != MAP_FAILED;
  constexpr int reserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (!is_mapped_) at = ::mmap(nullptr, whole_bytes_, PROT_NONE, reserved, -1, 0);
  if (at == MAP_FAILED) {
    throw error{
        errno_failure(errno, "mmap", {"bytes", whole_bytes_}, "no such range of addresses")};
  }
  whole_ = static_cast<std::byte*>(at);
}

descriptor_mapping::~descriptor_mapping() { ::munmap(whole_, whole_bytes_); }

}  // namespace cordma
