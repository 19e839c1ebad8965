#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fcntl.h>

namespace cordma::test {

/// Whether `body`, run in a child process, broke a contract (and aborted).
template <class Body>
bool aborts(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDERR_FILENO);
    ::open("/dev/null", O_WRONLY);
    std::signal(SIGABRT, SIG_DFL);
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

}  // namespace cordma::test
