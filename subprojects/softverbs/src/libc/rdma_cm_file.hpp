#pragma once

#include <sys/types.h>

#include <cstring>

// /dev/infiniband/rdma_cm: whose it is, and how a channel of ours is opened.

namespace softverbs::libc {

inline constexpr const char* rdma_cm_path = "/dev/infiniband/rdma_cm";

[[nodiscard]] inline bool is_rdma_cm(const char* path) noexcept {
  return path != nullptr && std::strcmp(path, rdma_cm_path) == 0;
}

/// open(rdma_cm_path, flags). The first call that succeeds decides for the process: the kernel's
/// file, or softverbs'.
int open_rdma_cm(int flags);

/// The device number of the kernel's rdma_cm: librdmacm compares it with what the kernel told it.
/// 0: the kernel has none. Keeps errno.
[[nodiscard]] dev_t rdma_cm_device() noexcept;

}  // namespace softverbs::libc
