#include "connection_state.hpp"

#include "base/failures.hpp"
#include "bootstrap_services.hpp"
#include "queue/send_queue.hpp"
#include "verbs/gid.hpp"

#include <cordma/coro/with_timeout.hpp>
#include <cordma/version.hpp>

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

namespace cordma::detail {
namespace {

#define CORDMA_TEXT_OF(x) #x
#define CORDMA_VERSION_TEXT(major, minor, patch) \
  CORDMA_TEXT_OF(major) "." CORDMA_TEXT_OF(minor) "." CORDMA_TEXT_OF(patch)
constexpr const char* library_text =
    "cordma " CORDMA_VERSION_TEXT(CORDMA_VERSION_MAJOR, CORDMA_VERSION_MINOR, CORDMA_VERSION_PATCH);
/// The field has 8 bits in ibv_qp_attr.
constexpr std::uint32_t rd_atomic_limit = 255;

/// Byte that a closing peer sends before the end of its stream. An end without it means that the
/// peer died.
constexpr std::byte goodbye{'.'};
/// Interval of polling for the late acknowledgements.
constexpr std::chrono::milliseconds late_ack_interval{1};
/// Longest wait for the device's event that it takes no more shared receives. Some devices never
/// report it.
constexpr std::chrono::milliseconds last_receive_wait{50};

verbs::gid_entry chosen_gid(const verbs::context& ctx, const verbs::port_info& port,
                            const connection_options& options, const socket_address& local) {
  const verbs::gid_request request{
      .index = options.gid_index,
      .local_ip = verbs::gid_of(*local.data()),
      .family = local.is_ipv6() ? verbs::gid_request::ip::v6 : verbs::gid_request::ip::v4};
  return verbs::choose_gid(ctx.gid_table(port.number), request);
}

std::uint16_t pkey_of(const verbs::context& ctx, const verbs::port_info& port,
                      const connection_options& options) {
  const std::uint16_t index = options.pkey_index.value_or(0);
  const std::uint16_t pkey = ctx.query_pkey(port.number, index);
  if ((pkey & handshake::pkey_partition) == 0) {
    throw_failure(errc::limit_exceeded, "connection_options",
                  detail_text("pkey_index %u of port %u holds 0x%04x, which is of no partition",
                              unsigned{index}, unsigned{port.number}, unsigned{pkey}));
  }
  return pkey;
}

verbs::access granted(const verbs::context& ctx, const connection_options& options) noexcept {
  const verbs::access wanted = options.remote_access;
  if (options.transport == verbs::queue_pair_type::uc) return wanted & verbs::access::remote_write;
  if (options.transport == verbs::queue_pair_type::xrc_initiator) return verbs::access::none;
  return ctx.limits().atomic == IBV_ATOMIC_NONE ? wanted & ~verbs::access::remote_atomic : wanted;
}

/// Returns a target's domain; null for any other side.
verbs::xrc_domain* domain_of(const verbs::context& ctx, const connection_options& options) {
  if (options.transport != verbs::queue_pair_type::xrc_target) return nullptr;
  if (options.xrc_domain->native_handle()->context != ctx.native_handle()) {
    throw error{{.code = errc::wrong_protection_domain,
                 .call = "connection_options",
                 .detail = "the XRC domain is of another runtime"}};
  }
  return options.xrc_domain;
}

verbs::queue_pair_capabilities capabilities(const connection_options& options) noexcept {
  verbs::queue_pair_capabilities caps = options.capabilities;
  if (options.agent.enabled) caps.send_wr_max += agent::reserved_slots;
  return caps;
}

unsigned cqes_max(const connection_options& options) noexcept {
  const verbs::queue_pair_capabilities caps = capabilities(options);
  return caps.send_wr_max + (options.receives_from != nullptr ? 0 : caps.recv_wr_max) +
         (options.agent.enabled ? agent::cqes_max : 0);
}

/// Returns true if the connection needs its own domain: without windows, a peer can reach
/// everything that is lent in its domain.
bool needs_own_domain(const connection_resources& r, const agent_options& options) noexcept {
  const lending_policy& policy = options.lending;
  return options.enabled &&
         (policy.isolation_max == isolation::shared_key ||
          (policy.isolation_min == isolation::shared_key && !r.lending.has_windows()));
}

/// Returns the address that a GID is, with port 0.
socket_address address_of(const ibv_gid& gid) noexcept {
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  std::memcpy(&v6.sin6_addr, gid.raw, sizeof gid.raw);
  if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
    return {reinterpret_cast<const sockaddr*>(&v6), sizeof v6};
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  std::memcpy(&v4.sin_addr, gid.raw + 12, sizeof v4.sin_addr);
  return {reinterpret_cast<const sockaddr*>(&v4), sizeof v4};
}

/// Only a stop is passed on: a wait that failed, or was too long, has ended as well.
void pass_stop(const result<void>& waited) {
  if (waited.is_cancelled()) throw cancelled{};
}

}  // namespace

verbs::port_info checked_port(const verbs::context& ctx, const connection_options& options) {
  if (ctx.info().transport == IBV_TRANSPORT_IWARP) {
    throw error{{.code = errc::not_supported,
                 .call = "connect",
                 .detail = "an iWARP device: its queue pairs are connected by rdma_cm only; use an "
                           "InfiniBand or RoCE device"}};
  }
  const verbs::port_info port =
      options.port == 0 ? ctx.active_port() : ctx.query_port(options.port);
  check(options, ctx.limits(), port);
  return port;
}

connection_state::connection_state(const connection_resources& r, const connection_options& options,
                                   const socket_address& local_address,
                                   const socket_address& peer_address)
    : timer{[](timer& self) noexcept { static_cast<connection_state&>(self).tick(); }},
      mode_{r.mode},
      ctx_{r.ctx},
      options_{options},
      port_{checked_port(r.ctx, options)},
      gid_{chosen_gid(r.ctx, port_, options, local_address)},
      gids_{r.bootstraps.gids},
      own_domain_{needs_own_domain(r, options.agent) ? r.lending.make_domain(r.memory) : nullptr},
      lending_{own_domain_ ? own_domain_->lending : r.lending},
      executor{r.executor},
      memory{own_domain_ ? own_domain_->memory : r.memory},
      qp{r.drivers.driver_for(cqes_max(options), options.receives_from),
         lending_.domain(),
         capabilities(options),
         port_.message_max_bytes,
         options.receives_from,
         options.transport,
         domain_of(r.ctx, options)},
      local{local_address},
      peer{peer_address} {
  const verbs::access remote = granted(r.ctx, options);
  verbs::access allowed = remote;
  if (options.agent.enabled && is_reliable()) {
    allowed |= verbs::access::remote_read;  // The peer's flushes are READs.
    if (lending_.has_windows()) allowed |= verbs::access::mw_bind;
  }
  // A target takes nothing before `open`.
  if (options.credentials != nullptr && !is_target())
    allows_then_ = std::exchange(allowed, verbs::access::none);
  qp.verbs().to_init(port_.number, options.pkey_index.value_or(0), allowed);
  const verbs::device_limits& limits = r.ctx.limits();
  const std::uint32_t rd_atomic = options.transport == verbs::queue_pair_type::uc
                                      ? 0
                                      : options.rd_atomic_max.value_or(rd_atomic_limit);
  local_hello = {
      .layer =
          port_.is_ethernet() ? handshake::link_layer::ethernet : handshake::link_layer::infiniband,
      .gid_kind = gid_.type,
      .mtu = port_.mtu_active,
      .service = handshake::service_of(options.transport),
      .lid = port_.lid,
      .gid = gid_.gid,
      .qpn = qp.verbs().num(),
      .psn = handshake::random_psn(),
      .rd_atomic_initiator = std::min({rd_atomic, limits.qp_init_rd_atom_max, rd_atomic_limit}),
      .rd_atomic_responder = std::min({rd_atomic, limits.qp_rd_atom_max, rd_atomic_limit}),
      .recv_wr_max = qp.share() != nullptr ? qp.share()->credit()
                                           : std::max(qp.verbs().capabilities().recv_wr_max, 1u),
      .allows_writes = verbs::allows(remote, verbs::access::remote_write),
      .message_max_bytes = port_.message_max_bytes,
      .library = library_text,
      .private_data = options.private_data,
      .pkey = pkey_of(r.ctx, port_, options),
      .fabric = options.fabric};
  if (!options.agent.enabled) return;
  agent = std::make_unique<cordma::agent>(agent_resources{.data = qp,
                                                          .lending = lending_,
                                                          .memory = memory,
                                                          .port = port_,
                                                          .gid = gid_,
                                                          .has_own_domain = own_domain_ != nullptr},
                                          options.agent);
  callback_queue_pair& control = agent->control();
  control.verbs().to_init(port_.number, options.pkey_index.value_or(0), verbs::access::none);
  agent->post_receives();
  local_hello.agent = {.qpn = control.verbs().num(),
                       .psn = handshake::random_psn(),
                       .flush_word = lending_.flush_word()};
}

/// For a state that ends in the handshake; of any other, all has failed already.
connection_state::~connection_state() {
  qp.abort({.code = errc::closed, .call = "close"});
  fail_agent();
}

void connection_state::prepost() {
  const std::size_t each = options_.preposted_bytes;
  if (options_.preposted > 0 && each > 0)
    preposted_ = memory.allocate_uninitialized(options_.preposted * each);
  for (std::uint32_t i = 0; i < options_.preposted; ++i) {
    if (each > 0) {
      qp.post_recv(preposted_.slice(i * each, each));
    } else {
      qp.post_recv(std::span<const local_mr_slice>{});
    }
  }
}

task<> connection_state::proved() {
  if (!agent) co_return;
  co_await agent->proved.wait();
  if (agent->bad_frame) throw error{*agent->bad_frame};
  for (const callback_queue_pair* pair :
       {static_cast<callback_queue_pair*>(&qp), &agent->control()}) {
    if (pair->has_failed()) throw error{pair->failure_reason().to_failure(local_hello.qpn)};
  }
  if (!agent->is_running())
    throw_failure(errc::disconnected, "handshake", "the peer has gone before its proof");
  if (qp.share() != nullptr) qp.share()->admit(admittance::later);
}

task<> connection_state::resolve(const ibv_gid& gid) {
  return gids_.resolve(port_.number, verbs::address_vector::by_gid(gid, gid_.index));
}

bool connection_state::has_own_gid(const ibv_gid& gid) const {
  const std::vector<verbs::gid_entry> table = ctx_.gid_table(port_.number);
  return std::ranges::any_of(
      table, [&](const verbs::gid_entry& own) { return verbs::same_gid(own.gid, gid); });
}

void connection_state::limit_lending(const lending_policy& policy) {
  if (!agent) return;
  const lending_policy& before = agent->context.options.lending;
  agent_options changed = agent->context.options;
  changed.lending = policy;
  changed.lending.isolation_min = before.isolation_min;
  changed.lending.isolation_max = before.isolation_max;
  changed.lending.zero_based = before.zero_based;
  check(changed);
  agent->context.options = changed;
}

void connection_state::connect_control(verbs::rtr_attributes rtr, verbs::rts_attributes rts) {
  rtr.min_rnr_timer = options_.min_rnr_timer;
  rts.timeout = options_.timeout;
  agent->control().verbs().to_rtr(rtr);
  agent->control().verbs().to_rts(rts);
  path_ = rtr;
}

void connection_state::connect_plain(verbs::rtr_attributes rtr, verbs::rts_attributes rts) {
  rtr.min_rnr_timer = options_.min_rnr_timer;
  rts.timeout = options_.timeout;
  qp.verbs().to_rtr(rtr);
  qp.verbs().to_rts(rts);
  agreement.rtr = rtr;
  agreement.rts = rts;
}

/// The handshake runs over the agents that rdma_cm has connected: neither can be left out.
void connection_state::check_control(const verbs::rtr_attributes& path) const {
  const handshake::agent_address& theirs = peer_hello.agent;
  if (theirs.qpn != path.dest_qpn) {
    throw_failure(errc::bad_handshake, "handshake",
                  "the hello's agent is not the one that rdma_cm has connected");
  }
  if (agreement.control) return;
  throw_failure(errc::incompatible_peer, "handshake",
                detail_text("agents' protocol version %u here, %u there: rdma_cm needs agents of "
                            "one version on both sides",
                            unsigned{local_hello.agent.version}, unsigned{theirs.version}));
}

void connection_state::agree(const handshake::hello& remote, handshake::side ours,
                             const std::optional<agent_protocol::payload>& expected,
                             std::optional<std::uint8_t> control_timeout) {
  static_assert(handshake::agent_address::version_ours == agent_protocol::version);
  if (agent && agent->bad_frame) throw error{*agent->bad_frame};
  peer_hello = remote;
  if (peer == socket_address{}) peer = address_of(remote.gid);
  handshake::hello local_side = local_hello;
  if (path_) local_side.mtu = std::min(local_side.mtu, path_->path_mtu);
  agreement = path_ ? handshake::negotiate(local_side, remote, path_->peer, ours)
                    : handshake::negotiate(local_side, remote, gid_.index, ours);
  if (path_) check_control(*path_);
  // Only equal sides have no word between the proof and the first message.
  if (expected && ours != handshake::side::equal && qp.share() != nullptr)
    qp.share()->admit(admittance::none);
  const auto bring_up = [&](callback_queue_pair& pair, handshake::pair_attributes& agreed,
                            std::uint8_t timeout) {
    agreed.rtr.min_rnr_timer = options_.min_rnr_timer;
    agreed.rts.timeout = timeout;
    agreed.rts.retry_cnt = options_.retry_cnt;
    agreed.rts.rnr_retry = options_.rnr_retry;
    // The text of equal sides is the peer's proof.
    if (&pair == &qp && is_target() && ours != handshake::side::equal) return;
    pair.verbs().to_rtr(agreed.rtr);
    pair.verbs().to_rts(agreed.rts);
  };
  bring_up(qp, agreement, options_.timeout);
  if (!agreement.control) {
    if (expected) {
      throw error{{.code = errc::incompatible_peer,
                   .call = "handshake",
                   .detail = "credentials need agents of one version on both sides"}};
    }
    return agent.reset();
  }
  if (!path_)
    bring_up(agent->control(), *agreement.control, control_timeout.value_or(options_.timeout));
  // The peer may send frames before this side is done.
  agent->start(remote.agent.flush_word, expected, allows_then_);
}

void connection_state::open() {
  if (!is_target() || qp.verbs().state() != verbs::queue_pair_state::init) return;
  qp.verbs().to_rtr(agreement.rtr);
  qp.verbs().to_rts(agreement.rts);
}

void connection_state::watch_over(std::unique_ptr<byte_channel>&& channel) {
  // The kernel's probes find a dead host where no heartbeat can be sent.
  channel->keep_alive(options_.heartbeat.interval, options_.heartbeat.misses);
  channel_ = std::move(channel);
  failure_watch_.emplace(*this, qp, &on_failure);
  if (agent) agent_watch_.emplace(*this, agent->control(), &on_agent_failure);
  if (options_.heartbeat.enabled && can_beat() && !qp.has_failed()) {
    executor.arm(*this, executor.after(options_.heartbeat.interval));
  }
  channel_->listen(this);
  on_channel_change();  // The peer may have said its goodbye before.
  if (qp.share() != nullptr) qp.share()->admit(admittance::all);
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
  if (channel_) channel_->hang_up();
}

/// Ends everything after the peer's last message.
void connection_state::end_with_peer() noexcept {
  qp.abort_after_last_message({.code = errc::disconnected, .call = "hang_up"});
  abort(errc::disconnected, "hang_up");
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
  } catch (const error&) {
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
  return std::noop_coroutine();
}

std::coroutine_handle<> connection_state::on_agent_failure(waiter& watch) noexcept {
  connection_state& state = static_cast<failure_watch&>(watch).state;
  state.abort(errc::disconnected, "agent");
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

/// Sends the goodbye once, for nothing may follow the end of the channel.
void connection_state::say_goodbye() noexcept {
  if (is_end_told_ || std::exchange(is_goodbye_said_, true)) return;
  try {
    // There is room: the goodbye is the first word since the handshake.
    static_cast<void>(channel_->try_write({&goodbye, 1}));
  } catch (const error&) {
    // The peer has gone.
  }
  channel_->end_writing();
}

task<> connection_state::close() {
  const time_span limit = options_.close_timeout;
  if (!qp.has_failed()) {
    // The heartbeat's CQE ends unsignaled requests before it, which nothing else might.
    if (completes_beats() && !qp.sends().is_idle()) beat();
    pass_stop(co_await as_result(with_timeout(qp.sends_idle(), limit, &executor)));
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
