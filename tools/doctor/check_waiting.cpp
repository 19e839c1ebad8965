#include "checks.hpp"

#include <cerrno>

namespace doctor {
namespace {

/// Tells whether an executor then waits with epoll. Without memory or descriptors it does not
/// start.
bool falls_back(int error) noexcept {
  return error == EPERM || error == EACCES || error == ENOSYS || error == EINVAL;
}

bool has_seccomp_filter(const subject& s) {
  return s.files.field("/proc/self/status", "Seccomp") == "2";
}

/// Returns what forbids io_uring, from its errno and the kernel's files.
std::string cause(const subject& s) {
  const int error = s.process.ring_failure->code.value();
  const std::int64_t disabled = s.files.number("/proc/sys/kernel/io_uring_disabled").value_or(0);
  const std::string release = s.files.text("/proc/sys/kernel/osrelease").value_or("unknown");
  const bool is_refused = error == EPERM || error == EACCES;
  if (is_refused && disabled > 0) {
    return "kernel.io_uring_disabled is " + std::to_string(disabled);
  }
  if ((is_refused || error == ENOSYS) && has_seccomp_filter(s)) {
    return "a seccomp filter forbids io_uring_setup";
  }
  if (is_refused) return "a security module forbids it";
  if (error == ENOSYS || error == EINVAL) return "the kernel, " + release + ", is without it";
  return s.process.ring_failure->code.message();
}

std::string mend(const subject& s) {
  const int error = s.process.ring_failure->code.value();
  switch (error) {
    case EPERM:
    case EACCES:
      if (s.files.number("/proc/sys/kernel/io_uring_disabled").value_or(0) > 0) {
        return "sudo sysctl kernel.io_uring_disabled=0";
      }
      break;
    case ENOSYS:
      if (!has_seccomp_filter(s)) return "boot Linux 5.13 or later, best 6.1";
      break;
    case EINVAL: return "boot Linux 5.13 or later, best 6.1";
    case ENOMEM: return "ulimit -l unlimited";
    case EMFILE:
    case ENFILE: return "ulimit -n 65536";
    default: break;
  }
  return "allow io_uring_setup, io_uring_enter and io_uring_register in the filter, of a container "
         "--security-opt seccomp=PROFILE";
}

}  // namespace

void check_waiting(const subject& s, report& r) {
  const std::string& variable = s.process.backend_variable;
  const std::string why =
      "an executor waits with io_uring, which takes fewer system calls, else with epoll";
  const bool is_known =
      variable.empty() || variable == "automatic" || variable == "io_uring" || variable == "epoll";
  if (!is_known) {
    r.error("waiting", "CORDMA_IO_BACKEND is '" + variable + "'",
            "a runtime refuses a wrong variable, and does not start", "unset CORDMA_IO_BACKEND");
  } else if (variable == "epoll") {
    r.note("waiting", "epoll, because CORDMA_IO_BACKEND says so", why, "unset CORDMA_IO_BACKEND");
  } else if (!s.process.ring_failure) {
    r.ok("waiting", "io_uring", why);
  } else if (variable == "io_uring") {
    r.error("waiting", "CORDMA_IO_BACKEND says io_uring, and " + cause(s),
            "a runtime does not start without what the variable names", mend(s));
  } else if (!falls_back(s.process.ring_failure->code.value())) {
    r.error("waiting", s.process.ring_failure->to_string(), "no runtime starts", mend(s));
  } else {
    r.warning("waiting", "epoll, because " + cause(s), why, mend(s));
  }
}

}  // namespace doctor
