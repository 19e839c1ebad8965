#pragma once

#include <cordma/agent/agent_options.hpp>
#include <cordma/agent/loan.hpp>
#include <cordma/agent/remote_mr.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/detail/agent/inline_grant.hpp>
#include <cordma/detail/agent/lending.hpp>
#include <cordma/memory/mr_allocator.hpp>
#include <cordma/verbs/device.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace cordma {

class queue_pair;
class queue_pair_base;

/// The parts that an agent works with. All but `data` outlive the agent.
struct agent_resources {
  queue_pair& data;
  cordma::lending& lending;
  mr_allocator& memory;
  verbs::port_info port;
  verbs::gid_entry gid;
  bool has_own_domain = false;  ///< The protection domain is this connection's alone.
};

/// Trades remote memory with the agent of the peer, over a control queue pair of its own
/// (docs/agent-protocol.md): lends ours, borrows theirs, and sees that each lease ends. A
/// connection has one, and offers its calls. \thread the executor's.
class agent {
 public:
  /// Slots of the data queue pair's send queue that end windows, however much else is queued.
  static constexpr std::uint32_t reserved_slots = 4;
  /// CQEs of the control queue pair, on the data queue pair's completion queue.
  static constexpr unsigned completion_entries = 64;

  /// A control queue pair in RESET, and `reserved_slots` reserved on the data queue pair.
  /// \errors errc::limit_exceeded: an option; what the verbs and the allocator throw.
  agent(const agent_resources& resources, const agent_options& options);
  agent(const agent&) = delete;
  agent& operator=(const agent&) = delete;
  ~agent();

  [[nodiscard]] queue_pair_base& control() noexcept;
  /// Waits until the peer's device has all that was sent, or the control queue pair has failed.
  event::wait_op settled() noexcept;
  /// Posts the receives: once `control` is in INIT, before the peer can send.
  void post_receives();
  /// Begins once both queue pairs are in RTS. `flush_word`: the peer's `lending::flush_word`.
  void start(const remote_mr_slice& flush_word);
  /// Ends every lease, and everything that waits: the data queue pair is in ERROR.
  void fail(const failure& why) noexcept;

  task<remote_mr> request_remote_mr(std::size_t size_bytes, remote_mr_request request);
  task<loan> send_local_mr(local_mr memory, loan_options options);
  task<> send_remote_mr(remote_mr memory);
  /// Lends memory by a message with `l.terms()` that the caller posts on the data queue pair,
  /// behind the bind that `l` may need. \errors as `send_local_mr`; errc::limit_exceeded: the queue
  /// has no room for a message and what it lends, of which there may be
  /// `inline_grant::per_message_max`.
  void lend_inline(inline_grant& l, local_mr memory, verbs::access access);
  /// True if a message of ours can end such a loan (IBV_WR_SEND_WITH_INV). Only devices whose
  /// windows are as the specification says can do that: docs/devices.md.
  [[nodiscard]] bool can_invalidate(const loan_terms& terms) const noexcept;
  /// Borrows what a message of the peer's lends, until `until` or `end_along(number)`.
  /// \errors bad_alloc; errc::limit_exceeded; why the connection ended.
  remote_mr borrow_inline(const loan_terms& terms, verbs::access access,
                          std::chrono::steady_clock::time_point until, std::uint64_t& number);
  /// Call when the next message returns this loan. True: send that message with a fence, because
  /// requests on the loan are still in flight.
  bool end_along(std::uint64_t number) noexcept;
  task<local_mr> receive_local_mr();
  task<remote_mr> receive_remote_mr();

  /// Words that the layer above says to its peer, and that mean nothing to the agents.
  using note = std::array<std::uint64_t, 3>;
  /// Sends the only note of this side.
  void send_note(const note& ours) noexcept;
  /// Set once the peer's note has arrived.
  [[nodiscard]] event& note_arrived() noexcept;
  [[nodiscard]] const std::optional<note>& peer_note() const noexcept;

  [[nodiscard]] const agent_options& options() const noexcept;
  [[nodiscard]] const lending_counters& counters() const noexcept;
  [[nodiscard]] const std::optional<failure>& last_refusal() const noexcept;
  [[nodiscard]] std::vector<lease_info> leases() const;
  /// Why a frame of the peer's broke the connection.
  [[nodiscard]] const std::optional<failure>& bad_frame() const noexcept;

 private:
  class parts;
  std::unique_ptr<parts> parts_;
};

}  // namespace cordma
