#pragma once

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <string>

namespace cordma::test {

/// Runs `body` in a forked child, for what a process cannot take back, and gives the text that it
/// returns. Fork before a device is opened.
template <class Body>
std::string text_of_child(Body body) {
  int pipe_fds[2];
  REQUIRE(::pipe(pipe_fds) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::string text = body();
    const bool written = ::write(pipe_fds[1], text.data(), text.size()) == ssize_t(text.size());
    ::_exit(written ? 0 : 1);
  }
  ::close(pipe_fds[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n; (n = ::read(pipe_fds[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, std::size_t(n));
  }
  ::close(pipe_fds[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  return text;
}

/// Lets this process lock no more than `limit_bytes` from now on. Root passes whatever the limit
/// is, so the capability goes, too. For a child.
inline bool limit_memlock(rlim_t limit_bytes) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  const rlimit limit{limit_bytes, limit_bytes};
  return ::syscall(SYS_capset, &header, data) == 0 && ::setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
}

}  // namespace cordma::test
