#pragma once

#include <cordma/base/error.hpp>
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

namespace cordma {

struct connection_resources;

/// Options of a datagram socket.
struct datagram_options {
  std::uint8_t port = 0;                     ///< 0: the first ACTIVE one.
  std::optional<std::uint32_t> gid_index{};  ///< Unset: as `verbs::choose_gid`.
  std::uint16_t pkey_index = 0;
  /// The device drops datagrams with another Q_Key. Unset: a random one.
  std::optional<std::uint32_t> qkey{};
  /// Capacity. `recv_sge_max` is of the program's buffers: 1 to `receive_slices_max`.
  verbs::queue_pair_capabilities capacity{.recv_sge_max = 1};
  std::size_t routes_max = 256;  ///< Address handles that are kept while nothing uses them.
};

/// Counters of a datagram socket since it was opened.
struct datagram_counters {
  std::uint64_t routes_found = 0;     ///< Datagrams that found their route.
  std::uint64_t routes_made = 0;      ///< Address handles that were made.
  std::uint64_t routes_given_up = 0;  ///< Address handles that gave way to others.
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

  /// Posts a buffer for one datagram, of at least `payload_max` bytes.
  /// \errors  errc::wrong_length: the buffer is shorter, and a stranger's datagram could end the
  ///   socket. Else as `connection::post_recv`.
  void post_recv(const local_mr_slice& buffer) { post_recv(std::span{&buffer, 1}); }
  void post_recv(std::span<const local_mr_slice> buffer);
  /// Waits for the next datagram, for which a buffer was posted.
  [[nodiscard]] auto next_datagram() noexcept {
    return detail::receive_datagram_op<0, false>{receives(), address(), {}};
  }
  /// Posts a buffer, once there is room for it, and waits for the next datagram.
  [[nodiscard]] auto recv(const local_mr_slice& buffer) noexcept {
    return detail::receive_datagram_op<1, true>{receives(), address(), {buffer}};
  }

  /// Returns why the socket no longer works; nothing while it does.
  [[nodiscard]] std::optional<failure> why_lost() const noexcept;
  [[nodiscard]] const datagram_counters& counters() const noexcept;

 private:
  [[nodiscard]] detail::datagram_state& state() const noexcept;
  [[nodiscard]] receive_queue& receives() const noexcept;
  template <std::size_t N>
  detail::send_to_op<N> sent(const datagram_address& to, const send_request<N>& message) {
    return {state(), to, message};
  }

  detail::counted_ref<detail::datagram_state> state_;
};

}  // namespace cordma
