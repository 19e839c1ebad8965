#pragma once

#include <cordma/io/socket_address.hpp>

#include <cstddef>
#include <span>
#include <utility>

namespace cordma::detail {

/// Options of a stream socket. All but the first two are TCP's.
enum class socket_option : unsigned char {
  reuse_address,     ///< A port can be bound while former connections of it time out.
  keep_alive,        ///< A silent peer is probed.
  no_delay,          ///< Small messages are sent at once.
  probe_after_s,     ///< Silence before the first probe, in seconds.
  probe_interval_s,  ///< Time between two probes, in seconds.
  probes_max,        ///< Probes in a row without an answer that end the connection.
};

/// The side of a connection that `socket_calls::shut_down` ends.
enum class socket_side : unsigned char { reading, writing };

/// The calls on stream sockets, which the kernel or a simulated network answers. Each does what the
/// system call does. No call blocks: where it had to wait, it fails with EAGAIN, and the reactor
/// tells of readiness. A result below 0 is a negative errno. \thread the executor's.
class socket_calls {
 public:
  socket_calls() noexcept = default;
  socket_calls(socket_calls&&) = delete;

  /// Returns a new socket for addresses of a family, AF_INET for one. `close` ends it.
  virtual int make(int family) noexcept = 0;
  /// Prepares a socket that was made elsewhere for the calls here.
  virtual int adopt(int fd) noexcept = 0;
  /// Begins to connect. After -EINPROGRESS or -EINTR the socket becomes writable at the end.
  virtual int connect(int fd, const socket_address& to) noexcept = 0;
  virtual int bind(int fd, const socket_address& local) noexcept = 0;
  virtual int listen(int fd, int backlog) noexcept = 0;
  /// Returns the next connection's socket.
  virtual int accept(int fd) noexcept = 0;
  /// Returns the number of bytes taken. A closed peer is an error, never a signal.
  virtual std::ptrdiff_t send(int fd, std::span<const std::byte> from) noexcept = 0;
  /// Returns the number of bytes read; 0 at the end of the stream.
  virtual std::ptrdiff_t receive(int fd, std::span<std::byte> into) noexcept = 0;
  virtual int shut_down(int fd, socket_side side) noexcept = 0;
  virtual int local_address(int fd, socket_address& out) noexcept = 0;
  virtual int peer_address(int fd, socket_address& out) noexcept = 0;
  /// Takes the error by which a connection has ended, or was not made; 0: none.
  virtual int take_error(int fd) noexcept = 0;
  virtual int set_option(int fd, socket_option option, int value) noexcept = 0;
  virtual void close(int fd) noexcept = 0;

 protected:
  ~socket_calls() = default;
};

/// Owns a socket of some `socket_calls`. Move-only; closes it when destroyed.
class unique_socket {
 public:
  unique_socket() noexcept = default;
  unique_socket(socket_calls& calls, int fd) noexcept : calls_{&calls}, fd_{fd} {}
  unique_socket(unique_socket&& other) noexcept
      : calls_{other.calls_}, fd_{std::exchange(other.fd_, -1)} {}
  unique_socket& operator=(unique_socket&& other) noexcept {
    if (this != &other) {
      reset(std::exchange(other.fd_, -1));
      calls_ = other.calls_;
    }
    return *this;
  }
  ~unique_socket() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
  /// Returns the calls that work on the socket.
  [[nodiscard]] socket_calls& calls() const noexcept { return *calls_; }
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0) calls_->close(fd_);
    fd_ = fd;
  }

 private:
  socket_calls* calls_ = nullptr;
  int fd_ = -1;
};

}  // namespace cordma::detail
