#include "connection_state.hpp"

#include <cordma/coro/with_timeout.hpp>
#include <cordma/version.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

namespace cordma::detail {
namespace {

#define CORDMA_TEXT_OF(x) #x
#define CORDMA_VERSION_TEXT(major, minor, patch) \
  CORDMA_TEXT_OF(major) "." CORDMA_TEXT_OF(minor) "." CORDMA_TEXT_OF(patch)
constexpr const char* library_text =
    "cordma " CORDMA_VERSION_TEXT(CORDMA_VERSION_MAJOR, CORDMA_VERSION_MINOR, CORDMA_VERSION_PATCH);
/// 8 bits in ibv_qp_attr.
constexpr std::uint32_t rd_atomic_limit = 255;

/// Said by a peer that closes, before the end of its stream. An end without it is a death.
constexpr std::byte goodbye{'.'};
/// How often it is looked whether the acknowledgements that it owes have come.
constexpr std::chrono::milliseconds late_ack_interval{1};

verbs::gid_entry chosen_gid(const verbs::context& ctx, const verbs::port_info& port,
                            const connection_options& options, const socket_address& local) {
  const verbs::gid_wish wish{
      .index = options.gid_index,
      .local_ip = verbs::gid_of(*local.data()),
      .family = local.is_ipv6() ? verbs::ip_family::ipv6 : verbs::ip_family::ipv4};
  return verbs::choose_gid(ctx.gid_table(port.number), wish).entry;
}

verbs::access granted(const verbs::context& ctx, verbs::access wanted) noexcept {
  return ctx.limits().atomic == IBV_ATOMIC_NONE ? wanted & ~verbs::access::remote_atomic : wanted;
}

unsigned entries(const verbs::queue_pair_capabilities& caps) noexcept {
  return caps.send_wr_max + caps.recv_wr_max;
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
                                   const tcp_stream& stream)
    : timer{&on_tick},
      home_{r.home},
      mode_{r.mode},
      options_{options},
      port_{checked_port(r.ctx, options)},
      gid_{chosen_gid(r.ctx, port_, options, stream.local_address())},
      qp_{r.drivers.driver_for(entries(options.capabilities)), r.pd, options.capabilities,
          port_.message_max_bytes},
      local_{stream.local_address()},
      peer_{stream.peer_address()} {
  const verbs::access remote = granted(r.ctx, options.remote_access);
  qp_.verbs().to_init(port_.number, options.pkey_index, remote);
  const verbs::device_limits& limits = r.ctx.limits();
  const std::uint32_t rd_atomic = options.rd_atomic_max.value_or(rd_atomic_limit);
  local_hello_ = {
      .layer =
          port_.is_ethernet() ? handshake::link_layer::ethernet : handshake::link_layer::infiniband,
      .gid_kind = gid_.type,
      .mtu = port_.mtu_active,
      .lid = port_.lid,
      .gid = gid_.gid,
      .qpn = qp_.verbs().num(),
      .psn = handshake::random_psn(),
      .rd_atomic_initiator = std::min({rd_atomic, limits.qp_init_rd_atom_max, rd_atomic_limit}),
      .rd_atomic_responder = std::min({rd_atomic, limits.qp_rd_atom_max, rd_atomic_limit}),
      .recv_wr_max = qp_.verbs().capabilities().recv_wr_max,
      .allows_writes = verbs::allows(remote, verbs::access::remote_write),
      .message_max_bytes = port_.message_max_bytes,
      .library = library_text};
}

connection_state::~connection_state() = default;

void connection_state::agree(const handshake::hello& remote) {
  peer_hello_ = remote;
  agreement_ = handshake::negotiate(local_hello_, remote, gid_.index);
  agreement_.rtr.min_rnr_timer = options_.min_rnr_timer;
  agreement_.rts.timeout = options_.timeout;
  agreement_.rts.retry_cnt = options_.retry_cnt;
  agreement_.rts.rnr_retry = options_.rnr_retry;
  qp_.verbs().to_rtr(agreement_.rtr);
  qp_.verbs().to_rts(agreement_.rts);
}

void connection_state::watch_over(tcp_stream stream) {
  stream_.emplace(std::move(stream));
  // Where no heartbeat can be sent the kernel's takes its place: a dead host is always found.
  stream_->keep_alive(options_.heartbeat.interval, options_.heartbeat.misses);
  failure_watch_.emplace(*this);
  if (failure_watch_->wait.start(*failure_watch_, {&home_, {}})) stream_->shut_down_writing();
  if (options_.heartbeat.enabled && peer_hello_.allows_writes) {
    home_.arm(*this, home_.now() + options_.heartbeat.interval);
  }
  socket_watch_.emplace(*this, stream_->fd());  // May fire from now on.
}

void connection_state::abort(errc code, const char* call) noexcept {
  disarm();
  qp_.abort({.code = code, .call = call});
  if (stream_) stream_->shut_down_writing();
}

/// After the handshake a goodbye is all that is said on the socket: what comes else is the end of
/// the stream, an error, or a peer that does not keep to it and could fill our kernel's memory.
void connection_state::on_socket(fd_watch& watch) noexcept {
  connection_state& state = static_cast<socket_watch&>(watch).state;
  std::byte said;
  ssize_t n = ::recv(watch.fd(), &said, sizeof said, MSG_DONTWAIT);
  if (n > 0 && said == goodbye && !std::exchange(state.peer_said_goodbye_, true)) {
    n = ::recv(watch.fd(), &said, sizeof said, MSG_DONTWAIT);
  }
  if (n > 0) return state.abort(errc::bad_handshake, "recv after the handshake");
  const bool is_idle = n < 0 && (errno == EAGAIN || errno == EINTR) && watch.is_watching();
  if (!is_idle) state.peer_hung_up();
}

/// What the peer sent before it closed has arrived: its side of the connection saw it acknowledged.
/// What we sent it may have taken, and its acknowledgement be slower than the end of the stream:
/// after a goodbye its queue pair lives until we have hung up, too.
void connection_state::peer_hung_up() noexcept {
  if (late_acks_until_) return;
  qp_.driver().reap_all();
  peer_gone_.set();
  const bool owed = peer_said_goodbye_ && !is_manual() && !qp_.has_failed();
  if (!owed || qp_.sends().is_idle()) return abort(errc::disconnected, "hang_up");
  if (peer_hello_.allows_writes && (!beat_ || beat_->has_ended())) beat();
  late_acks_until_ = home_.now() + options_.close_deadline;
  disarm();  // The heartbeat's: from now on the timer looks for acknowledgements.
  await_late_acks();
}

void connection_state::await_late_acks() noexcept {
  qp_.driver().reap_all();
  if (qp_.sends().is_idle() || home_.now() >= *late_acks_until_) {
    return abort(errc::disconnected, "hang_up");
  }
  home_.arm(*this, home_.now() + late_ack_interval);
}

/// Into a socket that nothing else was written to: there is room.
void connection_state::say_goodbye() noexcept {
  ::send(stream_->fd(), &goodbye, sizeof goodbye, MSG_DONTWAIT | MSG_NOSIGNAL);
  stream_->shut_down_writing();
}

/// The queue pair broke, and the peer's may not know: the end of the stream tells it.
std::coroutine_handle<> connection_state::on_failure(waiter& watch) noexcept {
  connection_state& state = static_cast<failure_watch&>(watch).state;
  state.disarm();
  state.stream_->shut_down_writing();
  return std::noop_coroutine();
}

void connection_state::on_tick(timer& self) noexcept {
  static_cast<connection_state&>(self).tick();
}

void connection_state::tick() noexcept {
  if (qp_.has_failed()) return;
  if (late_acks_until_) return await_late_acks();
  if (beat_ && !beat_->has_ended()) {
    // In manual mode it may have ended long ago: only the program's `poll` would tell.
    if (!is_manual() && ++missed_ >= options_.heartbeat.misses) {
      return abort(errc::disconnected, "heartbeat");
    }
  } else {
    const std::uint32_t posted = qp_.sends().posted_total();
    if (posted == posted_before_ && qp_.sends().is_idle()) beat();
  }
  posted_before_ = qp_.sends().posted_total();
  home_.arm(*this, home_.now() + options_.heartbeat.interval);
}

/// A WRITE of nothing names no memory and wakes nobody; its acknowledgement says that the peer's
/// device is there, and has our queue pair's other end.
void connection_state::beat() noexcept {
  missed_ = 0;
  beat_.emplace(qp_.post(cordma::write(const_local_mr_slice{}, remote_mr_slice{})));
}

task<> connection_state::close() {
  if (!qp_.has_failed()) {
    // Ends unsignaled requests before it, which nothing else might.
    if (peer_hello_.allows_writes && !qp_.sends().is_idle()) beat();
    const auto idle = co_await as_result(with_timeout(qp_.sends_idle(), options_.close_deadline));
    if (idle.is_cancelled()) throw cancelled{};
    say_goodbye();
    const auto answer =
        co_await as_result(with_timeout(peer_gone_.wait(), options_.close_deadline));
    if (answer.is_cancelled()) throw cancelled{};
    abort(errc::disconnected, "close");
  }
  co_await drain();
}

task<> connection_state::drain() {
  if (is_manual()) co_return;
  const auto drained =
      co_await as_result(with_timeout(qp_.drained_event().wait(), options_.close_deadline));
  if (drained.is_cancelled()) throw cancelled{};
}

}  // namespace cordma::detail
