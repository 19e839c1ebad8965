#pragma once

#include <liburing.h>

namespace cordma::test {

/// Whether the kernel lets this process make a ring: containers often forbid it.
inline bool has_io_uring() {
  io_uring ring{};
  if (::io_uring_queue_init(1, &ring, 0) != 0) return false;
  ::io_uring_queue_exit(&ring);
  return true;
}

}  // namespace cordma::test
