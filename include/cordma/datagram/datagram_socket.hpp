#pragma once

#include <cordma/base/error.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/datagram/datagram.hpp>
#include <cordma/detail/base/counted.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/datagram/receive_datagram_op.hpp>
#include <cordma/detail/datagram/send_to_op.hpp>
#include <cordma/queue/work_request.hpp>
#include <cordma/verbs/queue_pair_attributes.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace cordma {

struct connection_resources;
namespace detail {
class multicast_group;
}

/// Options of a datagram socket.
struct datagram_options {
  std::uint8_t port = 0;                     ///< 0: the first ACTIVE one.
  std::optional<std::uint32_t> gid_index{};  ///< Unset: as `verbs::choose_gid`.
  std::uint16_t pkey_index = 0;
  /// The device drops datagrams with another Q_Key. Unset: a random one.
  std::optional<std::uint32_t> qkey{};
  /// Capacity. `recv_sge_max` is of the program's buffers: 1 to `buffer_slices::size_max`.
  verbs::queue_pair_capabilities capacity{.recv_sge_max = 1};
  std::size_t routes_max = 256;  ///< Address handles that are kept while nothing uses them.
};

/// Counters of a datagram socket since it was opened, or of all sockets of a runtime.
struct datagram_counters {
  std::uint64_t routes_found = 0;     ///< Datagrams that found their route.
  std::uint64_t routes_made = 0;      ///< Address handles that were made.
  std::uint64_t routes_given_up = 0;  ///< Address handles that gave way to others.
  std::uint64_t routes_failed = 0;    ///< Searches for a route that found none.
  std::uint64_t groups_joined = 0;    ///< Multicast groups that were joined.
};

/// A socket's membership of a multicast group. Leaves the group when dropped, before or after the
/// socket. Move-only. \thread the executor's.
class CORDMA_EXPORT multicast_membership {
 public:
  /// Options of `datagram_socket::join`.
  struct options {
    bool send_only = false;  ///< The socket sends to the group, and receives nothing of it.
  };

  multicast_membership() noexcept = default;  ///< Empty: only destruction and assignment.
  multicast_membership(multicast_membership&&) noexcept = default;
  multicast_membership& operator=(multicast_membership&&) noexcept = default;
  ~multicast_membership() = default;

  /// Returns the address that `datagram_socket::send_to` takes. Members get what is sent there;
  /// whether the sending socket does, too, is the device's affair.
  [[nodiscard]] const datagram_address& address() const noexcept;
  /// Returns why this is a membership no longer; nothing while it is. On InfiniBand a subnet
  /// manager may forget it: join again.
  [[nodiscard]] std::optional<failure> why_lost() const noexcept;

 private:
  friend class datagram_socket;
  explicit multicast_membership(detail::counted_ref<detail::multicast_group> group) noexcept
      : group_{std::move(group)} {}

  detail::counted_ref<detail::multicast_group> group_;
};

/// A socket of datagrams: a UD queue pair. It sends to any address, and receives from everyone who
/// knows its own. A datagram has at most `payload_max` bytes; it arrives once or not at all, in any
/// order. Where no receive is posted, it is lost (IBTA 9.8.3).
///
/// Move-only. Dropping the socket ends what waits with `errc::closed`. \thread the executor's.
class CORDMA_EXPORT datagram_socket {
 public:
  /// Opens a socket: `runtime::open_datagram`.
  datagram_socket(const connection_resources& resources, const datagram_options& options);
  datagram_socket(datagram_socket&& other) noexcept;
  datagram_socket& operator=(datagram_socket&& other) noexcept;
  ~datagram_socket();

  /// Returns the address that others send to.
  [[nodiscard]] const datagram_address& address() const noexcept;
  /// Returns the most bytes of a datagram: the port's active MTU.
  [[nodiscard]] std::size_t payload_max() const noexcept;

  /// Sends the bytes of `local`, one slice or an array of them. The operation ends when the bytes
  /// have left, and gives their number. The first datagram on a path waits for a search of the
  /// kernel's, a second or so if nobody answers.
  /// \errors  errc::wrong_length: more than `payload_max`, which the failure names. As `find_route`
  ///   for an unknown path. Else as `request_op`.
  /// \cost  on a known path a slot, a doorbell and a look-up; no allocation.
  auto send_to(const datagram_address& to, const auto& local, request_flags flags = {}) {
    return sent(to, cordma::send(local, flags));
  }
  /// Sends with 32 bits of immediate data.
  auto send_to_with_imm(const datagram_address& to, const auto& local, std::uint32_t immediate,
                        request_flags flags = {}) {
    return sent(to, cordma::send_with_imm(local, immediate, flags));
  }
  /// Makes the path to an address known, so that the first datagram there does not wait.
  /// \errors  ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ENODATA: there is no route; the detail names
  ///   the GID. errc::limit_exceeded: a field of the path is out of range. ENOMEM.
  [[nodiscard]] task<> find_route(datagram_address to);

  /// Answers, until the socket is dropped, everybody who asks at `local` by rdma_cm for the address
  /// that takes datagrams (`resolve`, rdma_connect(3) on RDMA_PS_UDP). An empty host is loopback,
  /// port 0 a free one. A further call replaces the address, unless it fails. Returns it. Between
  /// two addresses of one port nobody is answered, and another program may take the port.
  /// \errors  errc::refused: the Q_Key is not `datagram_address::rdma_cm_qkey`, which rdma_cm tells
  ///   all who ask. EADDRINUSE, EACCES, EADDRNOTAVAIL; ENODEV: no RDMA device has the address.
  endpoint publish(const endpoint& local);
  /// Asks the server at `server` by rdma_cm for the address that takes its datagrams. rdma_cm gives
  /// up after a minute: use `with_timeout`. A host name blocks the thread, as in
  /// `runtime::connect`.
  /// \errors  ECONNREFUSED: nobody answers for that port; errc::no_device: another device than the
  ///   socket's leads there; ENODEV, EHOSTUNREACH, ETIMEDOUT: the detail names the address.
  [[nodiscard]] task<datagram_address> resolve(endpoint server);

  /// Joins the group of an IP address, "239.1.2.3" or "ff0e::1", or of an MGID. All members use one
  /// Q_Key. A socket that joins a group twice gets each datagram once, until both memberships are
  /// dropped.
  /// \errors  EINVAL: not a group's address, or of another version of IP than the socket's GID. An
  ///   errno of setsockopt(2), ibv_attach_mcast(3) or rdma_join_multicast(3): the detail names the
  ///   group. errc::refused: the group has another Q_Key, which the detail names.
  /// \cost  a few system calls; on InfiniBand an answer of the subnet manager's.
  [[nodiscard]] task<multicast_membership> join(std::string_view ip_group,
                                                const multicast_membership::options& options = {});
  [[nodiscard]] task<multicast_membership> join(const ibv_gid& mgid,
                                                const multicast_membership::options& options = {});

  /// Posts a buffer for one datagram, of at least `payload_max` bytes.
  /// \errors  errc::wrong_length: the buffer is shorter, and a stranger's datagram could end the
  ///   socket. Else as `connection::post_recv`.
  void post_recv(const local_mr_slice& buffer) { post_recv(std::span{&buffer, 1}); }
  void post_recv(std::span<const local_mr_slice> buffer);
  /// Waits for the next datagram, for which a buffer was posted.
  [[nodiscard]] auto next_datagram() noexcept {
    return detail::receive_datagram_op<0, false>{receiver(), {}};
  }
  /// Posts a buffer, once there is room for it, and waits for the next datagram.
  [[nodiscard]] auto recv(const local_mr_slice& buffer) noexcept {
    return detail::receive_datagram_op<1, true>{receiver(), {buffer}};
  }

  /// Returns why the socket no longer works; nothing while it does.
  [[nodiscard]] std::optional<failure> why_lost() const noexcept;
  [[nodiscard]] const datagram_counters& counters() const noexcept;

 private:
  [[nodiscard]] detail::datagram_state& state() const noexcept;
  [[nodiscard]] detail::datagram_receiver receiver() const noexcept;
  static task<multicast_membership> member(detail::counted_ref<detail::datagram_state> of,
                                           ibv_gid mgid, bool send_only);
  template <std::size_t N>
  detail::send_to_op<N> sent(const datagram_address& to, const send_request<N>& message) {
    return {*sends_, state_, to, message};
  }

  detail::counted_ref<detail::datagram_state> state_;
  send_queue* sends_;  // Read without a call, across which a message would be kept in memory.
};

}  // namespace cordma
