#pragma once

#include "io/host_calls.hpp"
#include "io/socket_calls.hpp"

#include <cordma/base/time.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace cordma::sim::detail {

class host_state;
class world_state;

/// The stream sockets of a simulated host. Bytes arrive at other hosts later, by events of the
/// world, in order. Behind them comes the end of a side that closes, or dies.
///
/// States of a socket:
///   fresh      by `make`; `bind` gives it an address.
///   listening  by `listen`.
///   asking     by `connect`: its question is on its way to the other host, or the answer back.
///   connected  by the answer, or as the other side of one that asked.
///   refused    by the answer, or when the peer reset the connection: `take_error` tells.
class sim_sockets final : public cordma::detail::socket_calls {
 public:
  /// The first number of a descriptor that is not the kernel's.
  static constexpr int first_fd = 1 << 20;

  explicit sim_sockets(host_state& host) noexcept : host_{host} {}

  int make(int family) noexcept override;
  int adopt(int fd) noexcept override;
  int connect(int fd, const socket_address& to) noexcept override;
  int bind(int fd, const socket_address& local) noexcept override;
  int listen(int fd, int backlog) noexcept override;
  int accept(int fd) noexcept override;
  std::ptrdiff_t send(int fd, std::span<const std::byte> from) noexcept override;
  std::ptrdiff_t receive(int fd, std::span<std::byte> into) noexcept override;
  int shut_down(int fd, cordma::detail::socket_side side) noexcept override;
  int local_address(int fd, socket_address& out) noexcept override;
  int peer_address(int fd, socket_address& out) noexcept override;
  int take_error(int fd) noexcept override;
  int set_option(int fd, cordma::detail::socket_option option, int value) noexcept override;
  void close(int fd) noexcept override;

  /// Returns the events of poll(2) that hold for a socket.
  [[nodiscard]] short events_of(int fd) const noexcept;
  /// Closes all sockets, as the kernel does at the end of a process.
  void close_all() noexcept;
  /// From now on nobody hears of the sockets that there are.
  void mute() noexcept;
  [[nodiscard]] std::size_t count() const noexcept { return sockets_.size(); }

 private:
  enum class state : std::uint8_t { fresh, listening, asking, connected, refused };
  struct far_end {
    unsigned host = 0;
    std::uint64_t incarnation = 0;
    int fd = -1;
  };
  struct socket {
    int fd = -1;
    state now = state::fresh;
    std::uint16_t port = 0;  ///< this side's; 0: not bound
    unsigned peer_host = 0;
    std::uint16_t peer_port = 0;
    far_end peer;
    std::deque<std::byte> received;
    std::size_t in_flight = 0;  ///< bytes that the peer has not taken
    bool is_ended = false;      ///< the peer sends no more
    bool has_ended = false;     ///< this side sends no more
    int error = 0;
    std::deque<int> backlog;
    time_point last_arrival{};  ///< at the peer, of what was sent
  };

  [[nodiscard]] socket* find(int fd) noexcept;
  socket& add() noexcept;
  /// Has `f` called on the peer's host, behind what was sent before.
  template <class F>
  void tell_peer(socket& from, F f);
  void on_question(far_end from, std::uint16_t from_port, unsigned from_host, std::uint16_t port);
  void on_answer(int fd, far_end from, int error);
  void on_bytes(int fd, const std::vector<std::byte>& bytes);
  void on_taken(int fd, std::size_t bytes);
  void on_end(int fd, int error);
  /// Breaks a connection by chance. Returns the error of the call; 0: none.
  int broken(socket& s);
  void end(socket& s, int error);

  host_state& host_;
  std::map<int, socket> sockets_;
  int last_fd_ = first_fd;
  std::uint16_t last_port_ = 40000;
};

}  // namespace cordma::sim::detail
