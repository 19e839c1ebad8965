#pragma once

#include <cordma/agent/loan.hpp>
#include <cordma/agent/remote_mr.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/request/receive_op.hpp>
#include <cordma/detail/request/requester.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace cordma {

class agent;
class mr_allocator;
class queue_pair;
class socket_address;
struct lease_info;
struct lending_counters;

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

/// One reliable connection: a queue pair, and the TCP socket of its bootstrap, which stays open for
/// the connection's life. When the peer's process ends or closes, the socket says so at once; when
/// its host dies, a heartbeat finds out. Either way everything that waits ends with
/// `errc::disconnected`, and `why_lost()` says more.
///
/// Move-only; moving does not disturb operations under way. Dropping it ends what waits with
/// `errc::closed`, and hands the rest to the executor's closer, which takes the queue pair to
/// ERROR, reaps its flushes until a deadline, destroys it and closes the socket: `executor::run`
/// returns after that. An operation on an empty connection (default-made, moved from) is a broken
/// contract. \thread the executor's.
class CORDMA_EXPORT connection : public requester<connection> {
 public:
  connection() noexcept;
  explicit connection(std::unique_ptr<detail::connection_state> state) noexcept;
  connection(connection&& other) noexcept;
  connection& operator=(connection&& other) noexcept;
  ~connection();

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

  // Remote memory: docs/remote-memory.md. Every one throws errc::not_supported when one of the two
  // sides has no agent, errc::disconnected when the connection ends.

  /// Asks the peer for memory. It is zeroed, and aligned as asked; access and lease may be less.
  /// Memory dropped in the same turn goes back behind this, which then asks once more if the peer's
  /// limits refused it.
  /// \errors  errc::timed_out: no answer within `request.timeout`; what is granted later goes back.
  ///   errc::access_denied, errc::limit_exceeded: the peer's policy says no. errc::refused: it has
  ///   no memory. errc::out_of_range: an argument.
  task<remote_mr> request_remote_mr(std::size_t size_bytes, remote_mr_request request = {});
  /// Lends memory to the peer, which gets it by `receive_remote_mr`. Returns when it is offered.
  /// \errors  errc::wrong_protection_domain, errc::access_denied, errc::out_of_range: arguments.
  ///   errc::limit_exceeded: `leases_max`, or a total. errc::not_supported: the isolation that the
  ///   policy wants. The memory is freed then, as soon as nobody reaches it.
  task<loan> send_local_mr(local_mr memory, loan_options options = {});
  /// Hands borrowed memory back with what was written: its owner gets it by `receive_local_mr`, or,
  /// if it had offered it, by its `loan`. Returns when the owner has it, and nobody else can reach
  /// it.
  /// \errors  errc::lease_expired, errc::lease_ended, errc::wrong_connection; errc::timed_out after
  ///   `agent_options::request_timeout`. The memory is returned then.
  task<> send_remote_mr(remote_mr memory);
  /// Memory that we granted and the peer handed over. A stopped or late wait loses nothing.
  task<local_mr> receive_local_mr();
  task<local_mr> receive_local_mr(std::chrono::milliseconds timeout);
  /// The next loan that the peer offers; its lease runs from now on. As above.
  task<remote_mr> receive_remote_mr();
  task<remote_mr> receive_remote_mr(std::chrono::milliseconds timeout);
  [[nodiscard]] bool has_agent() const noexcept;
  /// For what is built on connections. Null: one of the two sides has none.
  [[nodiscard]] cordma::agent* agent() noexcept;
  [[nodiscard]] const lending_counters& lending() const noexcept;
  /// The last request for memory that the peer was refused, for a server's log: what it asked for,
  /// and which part of our policy says no.
  [[nodiscard]] std::optional<failure> last_refusal() const;
  /// Leases that are open now, in both directions.
  [[nodiscard]] std::vector<lease_info> leases() const;

  /// Memory that this connection's requests can name: the runtime's, but with `shared_key`, whose
  /// protection domain is the connection's own. What it allocates may outlive the connection.
  [[nodiscard]] mr_allocator& memory() noexcept;

  /// Lets what was posted finish, tells the peer, waits for its answer, and ends what still waits
  /// (receives, mostly) with `errc::disconnected`. Each wait is bounded by `close_deadline`.
  /// The connection must stay until this has ended; afterwards it is of no more use. Idempotent.
  /// \errors only `cancelled`: the connection is dropped like any other then.
  task<> close();

  /// False once it was closed or lost.
  [[nodiscard]] bool is_open() const noexcept;
  /// Why it no longer works, with the peer's address; nothing while it does.
  [[nodiscard]] std::optional<failure> why_lost() const noexcept;
  /// Whether the peer closed it, rather than died.
  [[nodiscard]] bool was_closed_by_peer() const noexcept;
  [[nodiscard]] explicit operator bool() const noexcept { return qp_ != nullptr; }

  /// The queue pair itself, for what only verbs can ask of it: its number, its state, its native
  /// handle. What is posted there by hand breaks the connection.
  [[nodiscard]] verbs::queue_pair& verbs() noexcept;
  /// For the library's own rooms: the type is private.
  [[nodiscard]] queue_pair& qp() noexcept {
    CORDMA_ASSERT(qp_ != nullptr, "used an empty connection");
    return *qp_;
  }
  [[nodiscard]] const queue_pair& qp() const noexcept {
    CORDMA_ASSERT(qp_ != nullptr, "used an empty connection");
    return *qp_;
  }
  [[nodiscard]] const socket_address& local() const noexcept;  ///< Of the bootstrap socket.
  [[nodiscard]] const socket_address& peer() const noexcept;
  /// What the two sides told each other, and came to.
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
  void drop() noexcept;

  std::unique_ptr<detail::connection_state> state_;
  // Into that: the ways of every operation, without a look there.
  send_queue* sends_ = nullptr;
  queue_pair* qp_ = nullptr;
};

}  // namespace cordma
