#include "local_server.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace perf {
namespace {

/// A port, or 0 and why there is none.
void tell(int to_parent, std::uint16_t port, std::string_view why = {}) {
  const bool is_told = ::write(to_parent, &port, sizeof port) == ssize_t(sizeof port) &&
                       ::write(to_parent, why.data(), why.size()) == ssize_t(why.size());
  if (!is_told) ::_exit(1);  // The parent is gone.
}

/// The child's life; gives its exit status.
int serve(server_options options, int to_parent) {
  options.only_one_client = true;
  options.is_quiet = true;
  bool is_told = false;
  try {
    cordma::runtime control{options.device.runtime_options()};
    server here{control, options};
    tell(to_parent, here.local_endpoint().port);
    is_told = true;
    control.run(here.serve());
    return 0;
  } catch (const std::exception& e) {
    if (!is_told) tell(to_parent, 0, e.what());
    return 1;
  }
}

}  // namespace

local_server::local_server(server_options options) {
  int fds[2];
  if (::pipe(fds) != 0) throw std::system_error{errno, std::system_category(), "pipe"};
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw std::system_error{errno, std::system_category(), "fork"};
  if (pid_ == 0) {
    ::close(fds[0]);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // A terminal sends these to both processes; the parent decides when its job ends.
    for (const int number : {SIGINT, SIGTERM}) static_cast<void>(std::signal(number, SIG_IGN));
    if (::getppid() != parent) ::_exit(1);  // The parent died before prctl().
    ::_exit(serve(std::move(options), fds[1]));
  }
  ::close(fds[1]);
  from_child_ = fds[0];
}

local_server::~local_server() {
  ::close(from_child_);
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::uint16_t local_server::port() {
  std::uint16_t port = 0;
  if (::read(from_child_, &port, sizeof port) != ssize_t(sizeof port)) {
    throw std::runtime_error{"the server's process ended before it listened"};
  }
  if (port != 0) return port;
  std::array<char, 1024> why;
  const ssize_t n = ::read(from_child_, why.data(), why.size());
  throw std::runtime_error{std::string(why.data(), n > 0 ? std::size_t(n) : 0)};
}

}  // namespace perf
