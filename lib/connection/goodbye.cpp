#include "base/failures.hpp"
#include "bootstrap_services.hpp"
#include "connection_state.hpp"
#include "io/logger.hpp"
#include "queue/send_queue.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

// How a connection watches its peer, and how it ends.

namespace cordma::detail {
namespace {

/// Byte that a closing peer sends before the end of its stream. An end without it means that the
/// peer died.
constexpr std::byte goodbye{'.'};
/// Interval of polling for the late acknowledgements.
constexpr std::chrono::milliseconds late_ack_interval{1};
/// Longest wait for the device's event that it takes no more shared receives. Some devices never
/// report it.
constexpr std::chrono::milliseconds last_receive_wait{50};

/// Only a stop is passed on: a wait that failed, or was too long, has ended as well.
void pass_stop(const result<void>& waited) {
  if (waited.is_cancelled()) throw cancelled{};
}

}  // namespace

void connection_state::watch_over(std::unique_ptr<byte_channel>&& channel) {
  // The kernel's probes find a dead host where no heartbeat can be sent.
  channel->keep_alive(options_.heartbeat.interval, options_.heartbeat.misses);
  channel_ = std::move(channel);
  log_start();
  totals_.made.add();
  is_counted_ = true;
  failure_watch_.emplace(*this, qp, &on_failure);
  if (agent) agent_watch_.emplace(*this, agent->control(), &on_agent_failure);
  if (options_.heartbeat.enabled && can_beat() && !qp.has_failed()) {
    executor.arm(*this, executor.after(options_.heartbeat.interval));
  }
  channel_->listen(this);
  on_channel_change();  // The peer may have said its goodbye before.
  if (qp.share() != nullptr) qp.share()->admit(admittance::all);
}

void connection_state::log_start() noexcept {
  is_logged_ = log_ != nullptr;
  if (log_ == nullptr || !log_->wants(event_log::kind::connected)) return;
  const bool has_address = local != socket_address{};
  const char* const found_by = !has_address      ? "exchanged"
                               : local.is_unix() ? "unix"
                               : path_           ? "rdma_cm"
                                                 : "tcp";
  const fixed_text<240> note =
      detail_text("%s, MTU %u, %s, peer %.*s", to_string(options_.transport),
                  verbs::bytes_of(agreement.rtr.path_mtu), agent ? "agent" : "no agent",
                  int(peer_hello.library.view().size()), peer_hello.library.view().data());
  log_->write(event_log::kind::connected, {.peer = &peer,
                                           .identity = peer_identity.name,
                                           .local = has_address ? &local : nullptr,
                                           .bootstrap = found_by,
                                           .qpn = local_hello.qpn,
                                           .note = note.view()});
}

/// Logs the end. A connection is closed, not lost, if one of the sides has said so.
void connection_state::log_end() noexcept {
  if (!std::exchange(is_logged_, false)) return;
  failure why = qp.failure_reason().to_failure(local_hello.qpn);
  if (agent && agent->bad_frame) why.detail = agent->bad_frame->detail;
  const bool is_own_end = has_asked_for_end(why);
  const bool is_lost = !is_own_end && !peer_said_goodbye;
  const char* const note = is_lost ? "" : is_own_end ? "by this side" : "by the peer";
  log_to(log_, is_lost ? event_log::kind::lost : event_log::kind::closed,
         {.peer = &peer,
          .identity = peer_identity.name,
          .qpn = local_hello.qpn,
          .note = note,
          .why = is_lost ? &why : nullptr});
}

/// Where the kernel does not ask after a peer that grants no writes, the agent can. Over UC the
/// agent always asks.
bool connection_state::can_beat() const noexcept {
  return beats_by_write() || (agent && !(is_reliable() && channel_->finds_dead_hosts()));
}

void connection_state::abort(errc code, const char* call) noexcept {
  disarm();
  qp.abort({.code = code, .call = call});
  fail_agent();
  count_end();
  if (channel_) channel_->hang_up();
}

void connection_state::end_with_peer(const char* call) noexcept {
  qp.abort_after_last_message({.code = errc::disconnected, .call = call});
  abort(errc::disconnected, call);
}

/// Tells the agent that the data queue pair is in ERROR: its windows can be destroyed.
void connection_state::fail_agent() noexcept {
  if (!agent) return;
  agent->fail(qp.failure_reason().to_failure(local_hello.qpn));
  agent->control().abort(qp.failure_reason());
}

/// Reads what has come. After the handshake the peer sends only a goodbye. Anything else is the
/// end, an error, or a peer that violates the protocol and could fill the kernel's memory.
void connection_state::on_channel_change() noexcept {
  std::array<std::byte, 1> said{};
  try {
    while (const auto n = channel_->try_read(said)) {
      if (*n == 0) return peer_hung_up();
      if (said[0] != goodbye || std::exchange(peer_said_goodbye, true))
        return abort(errc::bad_handshake, "recv after the handshake");
    }
  } catch (...) {  // No memory for an error is no better than the error.
    peer_hung_up();
  }
}

/// Handles the end of the stream. What the peer sent before it closed has arrived: the peer saw it
/// acknowledged. The acknowledgements of this side's requests may be slower than the end of the
/// stream. After a goodbye the peer's queue pair lives until this side has closed, too.
void connection_state::peer_hung_up() noexcept {
  // Shutting down an ended stream makes the socket ready again.
  if (peer_gone_.is_set()) return;
  qp.driver().reap_all();
  peer_gone_.set();
  const bool owed = peer_said_goodbye && !is_manual() && !qp.has_failed();
  if (!owed) return end_with_peer();
  const bool is_idle = qp.sends().is_idle();
  if (!is_idle && completes_beats() && (!beat_ || beat_->has_ended())) beat();
  late_acks_until_ = executor.after(options_.close_timeout);
  disarm();  // The timer stops the heartbeat: from now on it polls for acknowledgements.
  // The end comes in a later iteration: tasks that were just notified may still want to send.
  executor.arm(*this, executor.now());
}

void connection_state::await_late_acks() noexcept {
  qp.driver().reap_all();
  const bool is_late = executor.now() >= *late_acks_until_;
  if (is_late || (qp.sends().is_idle() && has_told_end())) {
    return end_with_peer();
  }
  see_unsignaled_end();
  executor.arm(*this, executor.after(late_ack_interval));
}

/// Returns true once the peer knows that this side has ended, too, or will by itself.
bool connection_state::has_told_end() noexcept {
  if (channel_->ends_with_peer() || !agent) return true;
  if (!std::exchange(is_end_told_, true)) {
    channel_->end_writing();
    static_cast<void>(agent->settled());
  }
  return agent->channel.has_settled();
}

/// Handles the failure of the queue pair. The end of the stream tells the peer, which may not know.
std::coroutine_handle<> connection_state::on_failure(waiter& watch) noexcept {
  connection_state& state = static_cast<failure_watch&>(watch).state;
  state.disarm();
  state.fail_agent();
  state.channel_->hang_up();
  state.log_end();
  state.count_end();
  state.ended->set();
  return std::noop_coroutine();
}

/// Counts an established connection's end once. Neither side has asked for the end of a lost one.
void connection_state::count_end() noexcept {
  if (!std::exchange(is_counted_, false)) return;
  totals_.ended.add();
  const bool is_own_end = has_asked_for_end(qp.failure_reason().to_failure(local_hello.qpn));
  if (!is_own_end && !peer_said_goodbye) totals_.lost.add();
}

/// Returns true if this side wanted the end, of which `why` tells.
bool connection_state::has_asked_for_end(const failure& why) const noexcept {
  return is_goodbye_said_ || why.call == std::string_view{"close"};
}

/// Handles the failure of the control queue pair, which may be noticed before the stream's end.
std::coroutine_handle<> connection_state::on_agent_failure(waiter& watch) noexcept {
  connection_state& state = static_cast<failure_watch&>(watch).state;
  state.end_with_peer("agent");
  return std::noop_coroutine();
}

void connection_state::tick() noexcept {
  if (qp.has_failed()) return;
  if (late_acks_until_) return await_late_acks();
  if (!beats_by_write()) {
    missed_ = agent->channel.probe() ? 0 : missed_ + 1;
    if (!is_manual() && missed_ >= options_.heartbeat.misses)
      return abort(errc::disconnected, "heartbeat");
  } else if (beat_ && !beat_->has_ended()) {
    // In manual mode the WRITE may have ended long ago: only the program's `poll` would find out.
    if (!is_manual() && ++missed_ >= options_.heartbeat.misses) {
      return abort(errc::disconnected, "heartbeat");
    }
  } else {
    // Unsignaled requests in flight say nothing about the peer.
    const std::uint32_t posted = qp.sends().posted_total();
    if (posted == posted_before_ && !qp.sends().awaits_completion()) beat();
  }
  posted_before_ = qp.sends().posted_total();
  executor.arm(*this, executor.after(options_.heartbeat.interval));
}

/// Posts a 0-byte WRITE, which names no memory and wakes nobody. Its acknowledgement shows that the
/// peer's device is there, and has the other end of the queue pair.
void connection_state::beat() noexcept {
  missed_ = 0;
  beat_.emplace(qp.post(cordma::write(const_local_mr_slice{}, remote_mr_slice{})));
}

/// Requests that were posted since the last beat, and raise no CQE, end with another one.
void connection_state::see_unsignaled_end() noexcept {
  const bool needs_beat = !qp.sends().will_end_all() && completes_beats();
  if (needs_beat && (!beat_ || beat_->has_ended())) beat();
}

/// Waits until the send queue is idle, or for `close_timeout`. Other tasks may post meanwhile.
task<> connection_state::sends_ended() {
  const time_span limit = options_.close_timeout;
  const time_point until = executor.after(limit);
  const time_span interval = std::min<time_span>(limit, late_ack_interval);
  for (bool is_idle = false; !is_idle && !executor.is_past(until);) {
    see_unsignaled_end();
    const auto waited = co_await as_result(with_timeout(qp.sends_idle(), interval, &executor));
    pass_stop(waited);
    is_idle = waited.has_value();
  }
}

/// Sends the goodbye once, for nothing may follow the end of the channel.
void connection_state::say_goodbye() noexcept {
  if (is_end_told_ || std::exchange(is_goodbye_said_, true)) return;
  try {
    // There is room: the goodbye is the first word since the handshake.
    static_cast<void>(channel_->try_write({&goodbye, 1}));
  } catch (...) {
    // The peer has gone, or hears of the end by the end of the channel.
  }
  channel_->end_writing();
}

task<> connection_state::close() {
  const time_span limit = options_.close_timeout;
  if (!qp.has_failed()) {
    co_await sends_ended();
    if (agent) pass_stop(co_await as_result(with_timeout(agent->settled(), limit, &executor)));
    say_goodbye();
    const bool is_answered = agent || channel_->ends_with_peer();
    if (is_answered)
      pass_stop(co_await as_result(with_timeout(peer_gone_.wait(), limit, &executor)));
    abort(errc::disconnected, "close");
  }
  co_await drain();
}

task<> connection_state::drain() {
  const time_span limit = options_.close_timeout;
  if (qp.share() != nullptr) {  // Manual mode waits, too: the last receive comes as an event.
    const time_span shorter = std::min<time_span>(limit, last_receive_wait);
    pass_stop(co_await as_result(with_timeout(qp.last_receive_event().wait(), shorter, &executor)));
  }
  if (is_manual()) co_return;
  pass_stop(co_await as_result(with_timeout(qp.drained_event().wait(), limit, &executor)));
}

}  // namespace cordma::detail
