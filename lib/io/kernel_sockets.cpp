#include "kernel_sockets.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace cordma::detail {
namespace {

template <class T>
T outcome(T returned) noexcept {
  return returned < 0 ? -errno : returned;
}

int ask_address(int (*ask)(int, sockaddr*, socklen_t*), int fd, socket_address& out) noexcept {
  sockaddr_storage storage{};
  socklen_t size_bytes = sizeof storage;
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  if (ask(fd, address, &size_bytes) != 0) return -errno;
  out = {address, size_bytes};
  return 0;
}

class sockets_of_kernel final : public socket_calls {
 public:
  int make(int family) noexcept override {
    return outcome(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  }
  int adopt(int fd) noexcept override {
    const int flags = ::fcntl(fd, F_GETFL);
    return flags < 0 ? -errno : outcome(::fcntl(fd, F_SETFL, flags | O_NONBLOCK));
  }
  int connect(int fd, const socket_address& to) noexcept override {
    return outcome(::connect(fd, to.data(), to.size_bytes()));
  }
  int bind(int fd, const socket_address& local) noexcept override {
    return outcome(::bind(fd, local.data(), local.size_bytes()));
  }
  int listen(int fd, int backlog) noexcept override { return outcome(::listen(fd, backlog)); }
  int accept(int fd) noexcept override {
    return outcome(::accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  }
  std::ptrdiff_t send(int fd, std::span<const std::byte> from) noexcept override {
    return outcome(::send(fd, from.data(), from.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  }
  std::ptrdiff_t receive(int fd, std::span<std::byte> into) noexcept override {
    return outcome(::recv(fd, into.data(), into.size(), MSG_DONTWAIT));
  }
  int shut_down(int fd, socket_side side) noexcept override {
    return outcome(::shutdown(fd, side == socket_side::reading ? SHUT_RD : SHUT_WR));
  }
  int local_address(int fd, socket_address& out) noexcept override {
    return ask_address(&::getsockname, fd, out);
  }
  int peer_address(int fd, socket_address& out) noexcept override {
    return ask_address(&::getpeername, fd, out);
  }
  int take_error(int fd) noexcept override {
    int error = 0;
    socklen_t size_bytes = sizeof error;
    const bool is_told = ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size_bytes) == 0;
    return is_told ? -error : -errno;
  }
  int set_option(int fd, socket_option option, int value) noexcept override {
    const auto set = [&](int level, int name) {
      return outcome(::setsockopt(fd, level, name, &value, sizeof value));
    };
    switch (option) {
      case socket_option::reuse_address: return set(SOL_SOCKET, SO_REUSEADDR);
      case socket_option::keep_alive: return set(SOL_SOCKET, SO_KEEPALIVE);
      case socket_option::no_delay: return set(IPPROTO_TCP, TCP_NODELAY);
      case socket_option::probe_after_s: return set(IPPROTO_TCP, TCP_KEEPIDLE);
      case socket_option::probe_interval_s: return set(IPPROTO_TCP, TCP_KEEPINTVL);
      case socket_option::probes_max: return set(IPPROTO_TCP, TCP_KEEPCNT);
    }
    return -EINVAL;
  }
  void close(int fd) noexcept override { ::close(fd); }
};

}  // namespace

socket_calls& kernel_sockets() noexcept {
  static constinit sockets_of_kernel kernel;
  return kernel;
}

}  // namespace cordma::detail
