#pragma once

/// Makes `epoll_ctl` fail in this program, whose own definition of it comes before libc's.
namespace epoll_faults {

/// The next `count` calls fail with `errno_value`, and change nothing.
void fail_next(unsigned count, int errno_value) noexcept;
/// Calls that have yet to fail.
unsigned left() noexcept;

}  // namespace epoll_faults
