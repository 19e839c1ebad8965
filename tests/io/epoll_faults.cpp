#include "epoll_faults.hpp"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace {

// The numbers are atomic, because soft0's engine makes such calls as well.
std::atomic<unsigned> failing = 0;
std::atomic<int> failing_errno = 0;

}  // namespace

void epoll_faults::fail_next(unsigned count, int errno_value) noexcept {
  failing_errno = errno_value;
  failing = count;
}

unsigned epoll_faults::left() noexcept { return failing; }

extern "C" int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
  if (failing != 0) {
    --failing;
    errno = failing_errno;
    return -1;
  }
  return int(::syscall(SYS_epoll_ctl, epoll, operation, fd, event));
}
