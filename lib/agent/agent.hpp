#pragma once

#include "agent_context.hpp"
#include "borrower.hpp"
#include "control_bytes.hpp"
#include "lender.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace cordma {

/// \errors errc::limit_exceeded: the first value out of range, with its name and limits.
///   errc::not_supported: options that exclude each other.
void check(const agent_options& options);

/// Trades remote memory with the agent of the peer, over a control queue pair of its own
/// (docs/agent-protocol.md). The agent lends this side's memory, borrows the peer's, and sees that
/// each lease ends. A connection has one agent, and offers its calls. The agent decides by what a
/// frame of the peer's says; the lender and the borrower move the leases. \thread the executor's.
class agent final : control_channel::listener {
 public:
  /// Slots of the data queue pair's send queue that end windows, however much else is queued.
  static constexpr std::uint32_t reserved_slots = 4;
  /// CQEs of the control queue pair, on the data queue pair's completion queue.
  static constexpr unsigned cqes_max = 64;

  /// A control queue pair in RESET, and `reserved_slots` reserved on the data queue pair.
  /// \param options  as `check` lets pass. \errors what the verbs and the allocator throw.
  agent(const agent_resources& resources, const agent_options& options);

  [[nodiscard]] callback_queue_pair& control() noexcept { return channel.qp(); }
  /// Waits until the peer's device has all that was sent, or the control queue pair has failed.
  event::wait_op settled() noexcept { return channel.settled(); }
  /// Posts the receives: once `control` is in INIT, before the peer can send.
  void post_receives() { channel.post_receives(); }
  /// Begins to carry the bytes of a bootstrap, and nothing else: once `control` is in RTS, before
  /// the first reap.
  byte_channel& start_bytes() noexcept;
  /// Begins once both queue pairs are in RTS, before the first reap. `flush_word`: the peer's
  /// `lending::flush_word`. With `expected`, the peer must send that proof first: until then the
  /// peer gets nothing and may do nothing. `then`: the rights that the data queue pair grants
  /// afterwards.
  void start(const remote_mr_slice& flush_word,
             const std::optional<agent_protocol::payload>& expected = {},
             std::optional<verbs::access> then = {}) noexcept;
  /// Sends this side's proof, before anything else.
  void send_proof(const agent_protocol::payload& ours) noexcept;
  /// Set when the peer has said what was expected of it, or will not: the agent or the peer ended.
  event proved;
  /// Returns true if the peer has said it and may use the agent.
  [[nodiscard]] bool is_running() const noexcept { return is_running_; }
  /// Ends every lease, and everything that waits: the data queue pair is in ERROR.
  void fail(const failure& why) noexcept;

  /// True if a message of ours can end such a loan (IBV_WR_SEND_WITH_INV). Only devices whose
  /// windows are as the specification says can do that: docs/devices.md.
  [[nodiscard]] bool can_invalidate(const loan_terms& terms) const noexcept;
  [[nodiscard]] std::vector<lease_info> leases();

  /// Words that the layer above says to its peer, and that mean nothing to the agents.
  using note = std::array<std::uint64_t, 3>;
  /// Sends the only note of this side.
  void send_note(const note& ours) noexcept;

  control_channel channel;
  agent_context context;
  lender lends;
  borrower borrows;
  std::optional<note> peer_note;
  event note_arrived;                  ///< Set with `peer_note`.
  std::optional<control_bytes> bytes;  ///< Where a bootstrap runs over the control queue pair.
  std::optional<failure> bad_frame;    ///< Why a frame of the peer's broke the connection.

 private:
  using frame = agent_protocol::frame;

  void on_frame(const frame& f, unsigned slot) noexcept override;
  void on_bad_frame(const failure& why) noexcept override;
  void on_channel_failure() noexcept override;
  void on_bootstrap(const frame& f, unsigned slot);
  void on_request(const frame& f, unsigned slot) noexcept;
  void on_renew(const frame& f, unsigned slot) noexcept;
  void on_hand_over(const frame& f, unsigned slot) noexcept;
  void on_accept(const frame& f) noexcept;
  void on_give_back(const frame& f) noexcept;
  [[nodiscard]] detail::holding& answered(const frame& f, agent_protocol::kind question);
  void on_granted(const frame& f);
  void on_renewed(const frame& f);
  void on_offer(const frame& f, unsigned slot);
  void on_revoke(const frame& f) noexcept;
  void on_note(const frame& f);

  control_channel::outgoing our_note_;
  control_channel::outgoing our_proof_;
  std::optional<agent_protocol::payload> expected_;  ///< The peer's proof, until it has come.
  std::optional<verbs::access> allows_then_;         ///< Set until the proof has come.
  bool is_running_ = false;                          ///< The peer may use the agent.
};

}  // namespace cordma
