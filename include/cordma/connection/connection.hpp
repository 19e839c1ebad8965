#pragma once

#include <cordma/agent/remote_mr.hpp>
#include <cordma/base/time.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/request/receive_op.hpp>
#include <cordma/detail/request/requester.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cordma {

class agent;
class mr_allocator;
class queue_pair;
class socket_address;
struct lease_info;
struct lending_counters;
struct identity;

namespace detail {
class connection_state;
}

namespace verbs {
class queue_pair;
}

namespace handshake {
struct agreement;
struct hello;
}  // namespace handshake

/// One connection, reliable unless its options say UC: a queue pair, and the TCP socket of its
/// bootstrap, which stays open until the end. When the peer's process ends or closes, the socket
/// reports it at once. When the peer's host dies, a heartbeat finds out. Either way everything that
/// waits ends with `errc::disconnected`, and `why_lost()` says more.
///
/// A connection is move-only; moving does not disturb operations in progress. Dropping it ends what
/// waits with `errc::closed`, and hands the rest to the executor's closer. The closer moves the
/// queue pair to ERROR, reaps its flushes until a deadline, destroys it and closes the socket.
/// `executor::run` returns after that.
///
/// An operation on an empty connection (default-made, moved from) breaks the contract. \thread the
/// executor's.
class CORDMA_EXPORT connection : public requester<connection> {
 public:
  connection() noexcept = default;
  explicit connection(std::unique_ptr<detail::connection_state> state) noexcept;
  connection(connection&& other) noexcept { *this = std::move(other); }
  connection& operator=(connection&& other) noexcept {
    sends_ = std::exchange(other.sends_, nullptr);
    qp_ = std::exchange(other.qp_, nullptr);
    state_ = std::move(other.state_);  // Drops the old state, whose owner may be called back.
    return *this;
  }
  ~connection() = default;

  /// Gives a buffer to the device; a later message lands in it.
  /// \errors  errc::receive_queue_full, stale_slice, access_denied, too_many_slices,
  ///   wrong_protection_domain, disconnected; an errno of ibv_post_recv(3).
  void post_recv(const local_mr_slice& buffer) { post_recv(std::span{&buffer, 1}); }
  void post_recv(std::span<const local_mr_slice> buffer);
  /// Gives the next message, in whichever buffer it is.
  [[nodiscard]] next_message_op next_message() noexcept { return {receives(), {}}; }
  /// Posts a buffer, and gives the next message.
  [[nodiscard]] receive_op<1> recv(const local_mr_slice& buffer) noexcept {
    return {receives(), {buffer}};
  }
  template <std::size_t N>
  [[nodiscard]] receive_op<N> recv(const std::array<local_mr_slice, N>& buffer) noexcept {
    return {receives(), buffer};
  }

  /// Gives the request functions of an XRC initiator for one receive queue of the target's domain:
  /// `co_await conn.to(number).send(local)`. What they return may outlive the view.
  /// \param receive_queue  `shared_receives::num` of the process that is to get the messages. A
  ///   number that the domain does not have breaks the connection, and the error names it.
  /// \errors  of the requests: errc::not_supported if the connection is no XRC initiator.
  [[nodiscard]] detail::xrc_requester to(std::uint32_t receive_queue) noexcept {
    return {sends(), receive_queue};
  }

  // Remote memory: docs/remote-memory.md. Each of the following functions throws
  // errc::not_supported when a side has no agent, and errc::disconnected when the connection ends.

  /// Asks the peer for memory. The memory is zeroed, and aligned as asked; access and lease may be
  /// less. Memory dropped in the same event-loop iteration is returned after the request. If the
  /// peer's limits refused the request, it is then sent once more.
  /// \errors  errc::timed_out: no answer within `request.timeout`; a later grant is returned.
  ///   errc::access_denied, errc::limit_exceeded: the peer's policy refuses. errc::refused: the
  ///   peer has no memory. errc::out_of_range: an argument.
  task<remote_mr> request_remote_mr(std::size_t size_bytes, remote_mr_request request = {});
  /// Lends memory to the peer, which gets it by `receive_remote_mr`. Returns when it is offered.
  /// \errors  errc::wrong_protection_domain, errc::access_denied, errc::out_of_range: arguments.
  ///   errc::limit_exceeded: `leases_max`, or a total. errc::not_supported: the isolation that the
  ///   policy wants. After an error the memory is freed as soon as nobody reaches it.
  task<loan> send_local_mr(local_mr memory, loan_options options = {});
  /// Hands borrowed memory back with what was written. The owner gets it by `receive_local_mr`, or
  /// by its `loan` if it had offered the memory. Returns when the owner has it, and nobody else can
  /// reach it.
  /// \errors  errc::lease_expired, errc::lease_ended, errc::wrong_connection; errc::timed_out after
  ///   `agent_options::request_timeout`. After an error the memory is returned.
  task<> send_remote_mr(remote_mr memory);
  /// Receives memory that this side granted and the peer handed over. A stopped or late wait loses
  /// nothing.
  task<local_mr> receive_local_mr();
  /// Receives the next loan that the peer offers; its lease runs from now on. A stopped or late
  /// wait loses nothing.
  task<remote_mr> receive_remote_mr();
  [[nodiscard]] bool has_agent() const noexcept;
  /// Returns the agent, for libraries built on connections. Null: one of the two sides has none.
  [[nodiscard]] cordma::agent* agent() noexcept;
  [[nodiscard]] const lending_counters& lending() const noexcept;
  /// Returns the last refusal of a peer's request for memory, for a server's log. The failure names
  /// what the peer asked for, and which part of this side's policy refused it.
  [[nodiscard]] std::optional<failure> last_refusal() const;
  /// Returns the open leases, in both directions.
  [[nodiscard]] std::vector<lease_info> leases() const;

  /// Returns the allocator of memory that this connection's requests can name. It is the runtime's,
  /// except with `shared_key`, where the connection has its own protection domain. Allocated memory
  /// may outlive the connection.
  [[nodiscard]] mr_allocator& memory() noexcept;

  /// Waits until posted requests have ended, tells the peer, and waits for its answer. Then what
  /// still waits (receives, mostly) ends with `errc::disconnected`. Each wait is bounded by
  /// `close_timeout`. The connection must stay until this has ended, and is of no use afterwards.
  /// Idempotent.
  /// \errors only `cancelled`: the connection then ends like any dropped one.
  task<> close();

  /// Waits until the connection was closed or lost. An XRC target has no request that would end
  /// then. The connection may be moved or dropped meanwhile, also before the task is awaited.
  task<> ended();
  /// Returns false once the connection was closed or lost.
  [[nodiscard]] bool is_open() const noexcept;
  /// Returns why the connection no longer works, with the peer's address; nothing while it does.
  [[nodiscard]] std::optional<failure> why_lost() const noexcept;
  /// Returns true if the peer closed the connection, false if the peer died.
  [[nodiscard]] bool was_closed_by_peer() const noexcept;
  [[nodiscard]] explicit operator bool() const noexcept { return qp_ != nullptr; }

  /// Returns the queue pair itself, for what only verbs can ask of it: its number, its state, its
  /// native handle. Posting there by hand breaks the connection.
  [[nodiscard]] verbs::queue_pair& verbs() noexcept;
  /// Returns the queue pair for the library's own rooms: the type is private.
  [[nodiscard]] queue_pair& qp() const noexcept {
    CORDMA_ASSERT(qp_ != nullptr, "used an empty connection");
    return *qp_;
  }
  [[nodiscard]] const socket_address& local() const noexcept;  ///< Address of the bootstrap socket.
  [[nodiscard]] const socket_address& peer() const noexcept;
  /// Returns who the peer has proved to be: by its key, its certificate, or as the process at the
  /// other end of a Unix socket.
  [[nodiscard]] const identity& peer_identity() const noexcept;
  /// Returns the peer's `connection_options::private_data`, or its `connection_request::reply`.
  [[nodiscard]] const std::array<std::byte, 64>& peer_private_data() const noexcept;
  /// Returns the number of the peer's queue pair; `verbs().num()` is this side's.
  [[nodiscard]] std::uint32_t peer_qpn() const noexcept;
  /// The next functions are for the library's own rooms: the types are private. They return what
  /// the two sides sent in the handshake, and what both agreed on.
  [[nodiscard]] const handshake::hello& local_hello() const noexcept;
  [[nodiscard]] const handshake::hello& peer_hello() const noexcept;
  [[nodiscard]] const handshake::agreement& agreement() const noexcept;

 private:
  friend class requester<connection>;
  [[nodiscard]] send_queue& sends() noexcept {
    CORDMA_ASSERT(sends_ != nullptr, "used an empty connection");
    return *sends_;
  }
  [[nodiscard]] receive_queue& receives() noexcept;
  struct dropper {
    void operator()(detail::connection_state* dropped) const noexcept;
  };

  std::unique_ptr<detail::connection_state, dropper> state_;
  // Pointers into `state_`, so that operations need not read it.
  send_queue* sends_ = nullptr;
  queue_pair* qp_ = nullptr;
};

}  // namespace cordma
