#pragma once

#include "machine_double.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <stdexcept>

// Operations of the tests on the file /dev/infiniband/rdma_cm.

namespace rdma_cm {

inline constexpr const char* path = "/dev/infiniband/rdma_cm";

inline int open(int flags = 0) { return ::open(path, O_RDWR | O_CLOEXEC | flags); }

inline bool command(int fd, unsigned char what) { return ::write(fd, &what, 1) == 1; }

inline bool is_channel(int fd) { return command(fd, machine::nothing); }

/// A function of libc, found as the dynamic linker finds it.
template <class Function>
Function* libc(const char* name) {
  auto* const found = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  if (found == nullptr) throw std::runtime_error{name};
  return found;
}

/// Runs `what` in a child of fork() and returns its status: 0 if `what` returned true.
template <class What>
int in_child(What what) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    int status = 1;
    try {
      constexpr unsigned seconds_max = 60;  // A hang is a failure, too.
      ::alarm(seconds_max);
      status = what() ? 0 : 1;
    } catch (const std::exception&) {
      status = 2;
    }
    ::_exit(status);
  }
  int status = -1;
  return ::waitpid(pid, &status, 0) == pid ? status : -1;
}

}  // namespace rdma_cm
