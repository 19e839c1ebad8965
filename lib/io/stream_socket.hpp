#pragma once

#include <cordma/base/time.hpp>
#include <cordma/base/unique_fd.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/detail/io/fd_watch.hpp>
#include <cordma/io/socket_address.hpp>
#include "io/socket_calls.hpp"

#include <cstdint>
#include <utility>

namespace cordma {

/// A connected stream socket: TCP's or a Unix one. Move-only; destroying it closes it. Its
/// operations refer to the socket, not to this object; the socket must stay open while they wait.
/// Any of them can be stopped, limited by `with_timeout`, or abandoned at any time. Bytes go
/// through a `stream_channel`, which owns the socket.
///
/// Small TCP messages are sent at once (TCP_NODELAY), and a write to a closed peer is an error,
/// never SIGPIPE. \thread the executor's.
class stream_socket {
 public:
  /// Takes over a connected socket, and makes it non-blocking. \errors ENOTSOCK and others.
  stream_socket(cordma::executor& executor, detail::unique_socket socket);
  /// Takes over a descriptor of the host that `executor` is on. \errors as above.
  stream_socket(cordma::executor& executor, unique_fd socket);

  /// \errors ECONNREFUSED, ETIMEDOUT (after the kernel's minutes: use `with_timeout`), …
  static task<stream_socket> connect(cordma::executor& executor, socket_address peer);

  /// Waits until the peer's FIN or RST has arrived, even with unread bytes before it. The peer's
  /// process is gone, or has closed.
  [[nodiscard]] readiness_op hang_up() noexcept { return cordma::hang_up(*executor_, fd()); }

  /// Probes a silent peer after each `interval` without a byte (whole seconds, rounded up). The
  /// connection breaks when `probes` in a row (1 to 127) went unanswered. A Unix socket needs no
  /// probes. \errors `error`.
  void keep_alive(time_span interval, unsigned probes);

  /// Ends writing: the peer reads the end of the stream.
  void shut_down_writing() noexcept;

  /// Releases the socket, for a stream of another executor. No operation may wait on this one.
  [[nodiscard]] detail::unique_socket release() && noexcept { return std::move(socket_); }

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  [[nodiscard]] detail::socket_calls& calls() const noexcept { return socket_.calls(); }
  [[nodiscard]] cordma::executor& executor() const noexcept { return *executor_; }
  /// Each returns an address of the connection. \errors `error` when the connection is gone.
  [[nodiscard]] socket_address local_address() const;
  [[nodiscard]] socket_address peer_address() const;

 private:
  cordma::executor* executor_;
  detail::unique_socket socket_;
};

/// A listening stream socket, TCP's or a Unix one. Move-only. \thread the executor's.
class stream_listener {
 public:
  class accept_op;

  /// Listens on `local`. With port 0 the kernel chooses; `local_address` returns the choice.
  /// A Unix socket's file that an ended process left behind is replaced; any other file stays. Of
  /// processes that take one path at the same moment, all but one get EADDRINUSE: meanwhile a file
  /// beside it, "PATH.cordma", is locked.
  /// \errors EADDRINUSE, EACCES (a port below 1024), EADDRNOTAVAIL (not an address of this host).
  stream_listener(cordma::executor& executor, const socket_address& local, int backlog = 128);
  stream_listener(stream_listener&&) noexcept = default;
  stream_listener& operator=(stream_listener&&) = delete;
  ~stream_listener() { close(); }

  /// Gives the next connection. \errors EMFILE, ENFILE, ENOBUFS or ENOMEM when it cannot be taken
  /// now. The connection stays in the backlog and the listener stays usable. Calling again at once
  /// gives the same error: close something or sleep first.
  [[nodiscard]] accept_op accept() noexcept;
  /// Closes the port now: the kernel refuses new clients, and resets those not accepted yet. A Unix
  /// socket's file is removed, if it is still this one's. No `accept` may be waiting. Idempotent.
  void close() noexcept;
  [[nodiscard]] socket_address local_address() const;
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

 private:
  cordma::executor* executor_;
  detail::unique_socket socket_;
  // A Unix socket's file, as bind(2) made it. The socket keeps the inode's number its own.
  std::uint64_t file_device_ = 0;
  std::uint64_t file_inode_ = 0;
};

class [[nodiscard]] stream_listener::accept_op : public operation_base<accept_op>,
                                                 public fd_operation {
 public:
  using value_type = stream_socket;
  [[nodiscard]] bool failed() const noexcept { return was_stopped() || errno_ != 0; }
  result<stream_socket> take_result();

 private:
  friend class stream_listener;
  accept_op(cordma::executor& executor, const detail::unique_socket& listening) noexcept
      : fd_operation{executor, listening.get(), fd_events::readable, &attempt},
        accepted_{listening.calls(), -1} {}
  static bool attempt(fd_operation& self) noexcept;

  detail::unique_socket accepted_;
  int errno_ = 0;
};

inline stream_listener::accept_op stream_listener::accept() noexcept {
  return {*executor_, socket_};
}

}  // namespace cordma
