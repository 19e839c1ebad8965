#pragma once

#include "cm/message.hpp"
#include "cm/poller.hpp"
#include "cm/socket_conversation.hpp"

#include <cstddef>
#include <memory>
#include <vector>

// The way in: listening sockets, and accepted ones that have not sent their request yet.

namespace softverbs::cm {

inline constexpr unsigned requests_pending_max = 32;  ///< limit by TCP, and by names
inline constexpr std::chrono::seconds request_time_max{2};

/// A socket whose request was read, and is valid.
struct arrival {
  unique_fd socket;
  route from;
  in6_addr local{};        ///< this host's address, if the request came by TCP
  bool by_unix = false;    ///< true: it came by the socket of a name, not by the port
  bool passed_on = false;  ///< true: it came by the holder of the port, which accepted the socket
};

class entrance;

/// A listening socket.
class acceptor final : private watched {
 public:
  acceptor(poller& by, entrance& into, bool by_unix) noexcept
      : watched{by}, entrance_{into}, by_unix_{by_unix} {}
  ~acceptor() { close(); }

  /// Accepts at `socket` from now on, instead of at another. False: out of memory.
  [[nodiscard]] bool open(unique_fd socket) noexcept;
  void close() noexcept;
  [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(socket_); }
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }

 private:
  void on_event(std::uint32_t events, time now) noexcept override;
  void on_time(time now) noexcept override;
  void close_copies() noexcept override { socket_.reset(); }

  entrance& entrance_;
  const bool by_unix_;
  unique_fd socket_;
  bool* closed_ = nullptr;  ///< set by close(), during a call to the entrance
};

/// An accepted socket whose request has not come yet.
class pending_request final : private watched {
 public:
  pending_request(poller& by, entrance& into) noexcept : watched{by}, entrance_{into} {}
  ~pending_request() { close(); }

  [[nodiscard]] bool is_free() const noexcept { return !from_.socket; }
  [[nodiscard]] time late() const noexcept { return late_; }
  [[nodiscard]] const in6_addr& peer_host() const noexcept { return from_.from.peer_host; }
  void take(arrival&& from, time now) noexcept;
  void close() noexcept;

 private:
  enum class outcome : std::uint8_t { waits, whole, bad };

  void on_event(std::uint32_t events, time now) noexcept override;
  void on_time(time) noexcept override { close(); }
  void close_copies() noexcept override { from_.socket.reset(); }
  void unwatch_socket() noexcept;
  outcome receive_packet() noexcept;
  outcome receive_stream() noexcept;

  entrance& entrance_;
  arrival from_;
  message words_;
  std::size_t received_ = 0;
  time late_{};
  bool is_watched_ = false;
};

/// All accepted sockets without a request: places for those by TCP, and places for those by names.
/// When there are too many, the host that has most loses its oldest.
class entrance {
 public:
  /// The receiver of each request. The engine calls it.
  class host {
   public:
    /// A socket of TCP, from `peer_host` to `local`; `peer_host` becomes all zero where the peer
    /// is of this host. False: it is closed.
    virtual bool admit(arrival& from) noexcept = 0;
    virtual void on_arrival(arrival&& from, const message& request) noexcept = 0;

   protected:
    ~host() = default;
  };

  entrance(poller& by, host& owner);  ///< throws std::bad_alloc
  void accept(unique_fd socket, bool by_unix, watched::time now) noexcept;
  /// True if the peer may send a request.
  [[nodiscard]] bool knows_peer(arrival& from) noexcept;
  [[nodiscard]] host& owner() noexcept { return owner_; }

 private:
  using pending_requests = std::vector<std::unique_ptr<pending_request>>;
  static pending_request& slot_in(pending_requests& among) noexcept;

  host& owner_;
  pending_requests by_tcp_;
  pending_requests by_names_;
};

}  // namespace softverbs::cm
