#pragma once

#include <cordma/base/unique_fd.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <string>

namespace support {

struct death {
  bool aborted;
  std::string text;  ///< the child's output to stderr
};

/// Runs `body` in a forked child and tells whether that ended in abort().
template <class Body>
death run_in_child(Body body) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // Catch would report a failure of its own.
    ::dup2(ends[1], STDERR_FILENO);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  const cordma::unique_fd reader{ends[0]};
  death seen{};
  char part[256];
  for (ssize_t n; (n = ::read(reader.get(), part, sizeof part)) > 0;) {
    seen.text.append(part, std::size_t(n));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  seen.aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
  return seen;
}

}  // namespace support
