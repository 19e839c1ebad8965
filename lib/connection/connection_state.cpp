#include "connection_state.hpp"

#include "base/failures.hpp"
#include "bootstrap_services.hpp"
#include "verbs/gid.hpp"

#include <cordma/version.hpp>

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
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
      log_{r.log},
      ctx_{r.ctx},
      options_{options},
      port_{checked_port(r.ctx, options)},
      gid_{chosen_gid(r.ctx, port_, options, local_address)},
      gids_{r.bootstraps.gids},
      totals_{r.bootstraps.connections},
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
                                                          .has_own_domain = own_domain_ != nullptr,
                                                          .log = log_,
                                                          .peer = &peer},
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
  log_end();  // The executor's end may be earlier than the wake-up of `on_failure`.
  count_end();
  ended->set();
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

void connection_state::check_pairs() const {
  if (agent && agent->bad_frame) throw error{*agent->bad_frame};
  const std::initializer_list<const callback_queue_pair*> pairs{
      &qp, agent ? &agent->control() : nullptr};
  for (const callback_queue_pair* pair : pairs)
    if (pair != nullptr && pair->has_failed())
      throw error{pair->failure_reason().to_failure(local_hello.qpn)};
}

task<> connection_state::proved() {
  if (!agent) co_return;
  co_await agent->proved.wait();
  check_pairs();
  if (!agent->is_running())
    throw_failure(errc::disconnected, "handshake", "the peer has gone before its proof");
  if (qp.share() != nullptr) qp.share()->admit(admittance::later);
}

task<> connection_state::resolve(const ibv_gid& gid) {
  check_pairs();  // A device that has failed finds nothing, and does not say why.
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
  check_pairs();
  rtr.min_rnr_timer = options_.min_rnr_timer;
  rts.timeout = options_.timeout;
  agent->control().verbs().to_rtr(rtr);
  agent->control().verbs().to_rts(rts);
  path_ = rtr;
}

void connection_state::connect_plain(verbs::rtr_attributes rtr, verbs::rts_attributes rts) {
  check_pairs();
  rtr.min_rnr_timer = options_.min_rnr_timer;
  rts.timeout = options_.timeout;
  qp.verbs().to_rtr(rtr);
  qp.verbs().to_rts(rts);
  agreement.rtr = rtr;
  agreement.rts = rts;
  path_ = rtr;
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
  check_pairs();
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

}  // namespace cordma::detail
