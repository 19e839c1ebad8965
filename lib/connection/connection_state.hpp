#pragma once

#include "agent/agent.hpp"
#include "agent/lending.hpp"
#include "io/byte_channel.hpp"
#include "request/queue_pair.hpp"

#include <cordma/connection/connection.hpp>
#include <cordma/connection/connection_options.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/io/socket_address.hpp>
#include <cordma/security/credentials.hpp>
#include "connection/connection_resources.hpp"
#include "connection/handshake.hpp"

#include <memory>
#include <optional>

namespace cordma {

/// \errors  errc::limit_exceeded: the first value out of range; the detail names it and its limit.
void check(const connection_options& options, const verbs::device_limits& limits,
           const verbs::port_info& port);

namespace detail {

class gid_resolver;
struct connection_totals;

/// Members of a connection: queue pair, channel, and the watches of both. The object is made before
/// the handshake ends, and never moves; the closer destroys it.
class connection_state final : private timer, private byte_channel::listener {
 public:
  /// Makes a queue pair in INIT, and the hello that describes it. The addresses are the
  /// bootstrap's.
  connection_state(const connection_resources& resources, const connection_options& options,
                   const socket_address& local, const socket_address& peer);
  connection_state(const connection_state&) = delete;
  connection_state& operator=(const connection_state&) = delete;
  ~connection_state();

  /// Moves the queue pair to RTR and RTS, as agreed with `remote`. Starts the agent, or destroys it
  /// if the peer has none. `ours`: this side's role. `expected`: what the peer's agent must prove
  /// first.
  /// \errors errc::incompatible_peer; errc::bad_frame: the peer's agent has broken the protocol
  ///   already; the verbs'.
  void agree(const handshake::hello& remote, handshake::side ours,
             const std::optional<agent_protocol::payload>& expected = {},
             std::optional<std::uint8_t> control_timeout = {});
  /// Makes an XRC target ready: its peer is known. `agree` leaves it in INIT, except for equal
  /// sides. Idempotent. \errors the verbs'.
  void open();
  /// Connects the control queue pair as rdma_cm says. `agree` then leaves it alone, and sends the
  /// data queue pair's packets the same way. \errors the verbs'.
  void connect_control(verbs::rtr_attributes rtr, verbs::rts_attributes rts);
  /// Posts the receives that the options ask for, before the word that lets the peer send.
  /// \errors those of `mr_allocator` and `receive_queue::post`.
  void prepost();
  /// Ends when the peer's agent has proved what was expected. \errors why it cannot any more.
  task<> proved();
  [[nodiscard]] const connection_options& options() const noexcept { return options_; }
  /// Waits until the kernel knows the way to a GID. \errors as `gid_resolver::resolve`.
  task<> resolve(const ibv_gid& gid);
  /// Returns true if the port's table has the GID. \errors those of the verbs.
  [[nodiscard]] bool has_own_gid(const ibv_gid& gid) const;
  /// Connects the only queue pair as rdma_cm says, to a peer that says nothing else.
  /// \errors the verbs'.
  void connect_plain(verbs::rtr_attributes rtr, verbs::rts_attributes rts);
  /// Lets the agent lend what `policy` says, but for what is fixed already: the isolation.
  /// \errors as `check` of the agent's options.
  void limit_lending(const lending_policy& policy);
  /// Starts to watch the channel, the heartbeat and the queue pair, when both sides have accepted.
  /// \errors those of `byte_channel::keep_alive`: the channel is the caller's still.
  void watch_over(std::unique_ptr<byte_channel>&& channel);

  /// Ends what waits, and tells the peer.
  void abort(errc code, const char* call) noexcept;
  /// Ends everything after the peer's last message. Not in the middle of a reap.
  void end_with_peer(const char* call = "hang_up") noexcept;
  /// Waits for what was posted, then for the peer's answer.
  task<> close();
  /// Waits until the device has returned what was posted on the data queue pair, or until a
  /// deadline.
  task<> drain();

 private:
  const completion_mode mode_;
  const logger* const log_;
  const verbs::context& ctx_;
  const connection_options options_;
  const verbs::port_info port_;
  const verbs::gid_entry gid_;
  gid_resolver& gids_;
  connection_totals& totals_;
  /// Keeps a peer that guesses keys from other connections' memory. Null: the runtime's domain is
  /// as good.
  const lending::own_domain own_domain_;
  cordma::lending& lending_;

 public:
  // Members that the connection's calls use.
  cordma::executor& executor;
  mr_allocator& memory;
  queue_pair qp;
  /// Null: one of the two sides has none. Declared after the queue pair that its windows lead to.
  std::unique_ptr<cordma::agent> agent;
  const socket_address local;
  socket_address peer;  ///< The address of the bootstrap; without one, the peer's GID.
  identity peer_identity;
  handshake::hello local_hello;
  handshake::hello peer_hello;
  handshake::agreement agreement;
  bool peer_said_goodbye = false;
  /// Set when the connection was closed or lost. Who waits for it shares it, and may outlive the
  /// connection.
  const std::shared_ptr<event> ended = std::make_shared<event>();

  /// Returns true over RC, where agents lend memory and a WRITE names no receive queue.
  [[nodiscard]] bool is_reliable() const noexcept {
    return options_.transport == verbs::queue_pair_type::rc;
  }
  [[nodiscard]] bool is_target() const noexcept {
    return options_.transport == verbs::queue_pair_type::xrc_target;
  }

 private:
  /// Calls a function when a queue pair fails, or has failed already.
  struct failure_watch : waiter {
    failure_watch(connection_state& s, callback_queue_pair& watched, function then) noexcept
        : waiter{then}, state{s}, wait{watched.failed_event().wait()} {
      if (wait.start(*this, {&s.executor, {}})) then(*this);
    }
    connection_state& state;
    event::wait_op wait;
  };
  /// \errors errc::bad_handshake, errc::incompatible_peer: the agents that rdma_cm has connected
  ///   are not those of the hellos, or cannot work together.
  void check_control(const verbs::rtr_attributes& path) const;
  /// \errors the reason why a queue pair does not work any more, or the agents' bad frame
  void check_pairs() const;
  void log_start() noexcept;
  void log_end() noexcept;
  void on_channel_change() noexcept override;
  static std::coroutine_handle<> on_failure(waiter& watch) noexcept;
  static std::coroutine_handle<> on_agent_failure(waiter& watch) noexcept;
  void fail_agent() noexcept;
  void say_goodbye() noexcept;
  void count_end() noexcept;
  [[nodiscard]] bool has_asked_for_end(const failure& why) const noexcept;
  void peer_hung_up() noexcept;
  void await_late_acks() noexcept;
  [[nodiscard]] bool has_told_end() noexcept;
  [[nodiscard]] bool can_beat() const noexcept;
  /// Returns true if a WRITE's acknowledgement can tell that the peer is there.
  [[nodiscard]] bool beats_by_write() const noexcept {
    return is_reliable() && peer_hello.allows_writes;
  }
  /// Returns true if such a WRITE breaks nothing: a UC peer without that right drops it.
  [[nodiscard]] bool completes_beats() const noexcept {
    return options_.transport == verbs::queue_pair_type::uc ||
           (is_reliable() && peer_hello.allows_writes);
  }
  void tick() noexcept;
  void beat() noexcept;
  void see_unsignaled_end() noexcept;
  task<> sends_ended();
  [[nodiscard]] bool is_manual() const noexcept { return mode_ == completion_mode::manual; }

  local_mr preposted_;  ///< Memory of the receives that `prepost` posted.
  event peer_gone_;
  std::unique_ptr<byte_channel> channel_;
  // Declared after what they watch, so that they are destroyed first.
  std::optional<failure_watch> failure_watch_;
  std::optional<failure_watch> agent_watch_;

  std::optional<request_op<write_request<1>>> beat_;
  std::optional<time_point> late_acks_until_;
  std::optional<verbs::rtr_attributes> path_;  ///< The path that rdma_cm has found.
  /// The peer's rights, where it must prove itself first.
  std::optional<verbs::access> allows_then_;

  bool is_logged_ = false;        ///< The log has been told of the beginning, and not of the end.
  bool is_counted_ = false;       ///< Made, and not yet ended, in the runtime's counters.
  bool is_end_told_ = false;      ///< Set by `has_told_end`.
  bool is_goodbye_said_ = false;  ///< Set by `close`, which may have been stopped after that.
  unsigned missed_ = 0;
  std::uint32_t posted_before_ = 0;  // Requests posted until the last tick.
};

/// Returns the port that `options` name, after checking all options.
/// \errors as `check`; errc::not_supported: an iWARP device; those of the verbs.
verbs::port_info checked_port(const verbs::context& ctx, const connection_options& options);

}  // namespace detail
}  // namespace cordma
