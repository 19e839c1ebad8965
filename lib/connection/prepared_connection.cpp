#include <cordma/connection/prepared_connection.hpp>

#include "base/failures.hpp"
#include "bootstrap.hpp"
#include "bootstrap_services.hpp"
#include "cm_link.hpp"
#include "connection_info.hpp"
#include "connection_state.hpp"
#include "io/logger.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace cordma {
namespace {

constexpr std::uint8_t timeout_limit = 31;

/// Returns a retransmission timeout with which a queue pair tries for the whole `connect_timeout`.
/// The peer may be later than that queue pair's first packet (IBTA 9.7.6.1.3).
std::uint8_t patient_timeout(const connection_options& options) noexcept {
  const auto tries_for = [&](std::uint8_t timeout) {
    return std::chrono::nanoseconds{4096} * (std::int64_t{1} << timeout) * (options.retry_cnt + 1);
  };
  std::uint8_t timeout = options.timeout;
  while (timeout < timeout_limit && tries_for(timeout) < duration{options.connect_timeout})
    ++timeout;
  return timeout;
}

/// Returns the first frame of a side's agent, which shows that it has read the other's text.
agent_protocol::payload proof_of(const handshake::nonce& speaker, const handshake::nonce& hearer) {
  agent_protocol::payload both;
  std::ranges::copy(hearer, std::ranges::copy(speaker, both.begin()).out);
  return both;
}

/// modify_qp(2) would look for another host's GID while the executor waits.
task<> find_route(detail::connection_state& mine, const handshake::hello& theirs) {
  const bool is_elsewhere =
      theirs.layer == handshake::link_layer::ethernet && !mine.has_own_gid(theirs.gid);
  if (is_elsewhere) co_await mine.resolve(theirs.gid);
}

/// Logs a failure, of whatever step.
task<connection> logged(const detail::logger* log, task<connection> connecting) {
  result<connection> made = co_await as_result(std::move(connecting));
  if (made.has_failure())
    detail::log_to(log, event_log::kind::connect_failed,
                   {.bootstrap = "exchanged", .why = &made.failure()});
  co_return std::move(made).value();
}

connection_options without_agent(connection_options options) noexcept {
  options.agent.enabled = false;
  return options;
}

}  // namespace

namespace detail {

struct prepared_state {
  connection_resources resources;
  connection_options options;
  time_point expires;
  std::unique_ptr<connection_state> made;
  std::unique_ptr<connection_state> plain;
  bool is_used = false;

  prepared_state(connection_resources from, const connection_options& with)
      : resources{from},
        options{with},
        expires{from.executor.after(prepared_connection::lifetime)} {
    if (options.credentials != nullptr) {
      throw_failure(errc::not_supported, "prepare_connection",
                    "credentials: the way that the information goes authenticates the "
                    "sides; leave connection_options::credentials");
    }
    static_cast<void>(checked_port(resources.ctx, options));
  }
  connection_state& of_cordma() {
    if (made) return *made;
    if (!options.agent.enabled) {
      throw_failure(errc::not_supported, "prepare_connection",
                    "without an agent nothing tells whether the peer is there: leave "
                    "agent.enabled, or use plain_info");
    }
    make(made, options);
    made->local_hello.nonce = handshake::random_nonce();
    return *made;
  }
  connection_state& of_any() {
    if (!plain) make(plain, without_agent(options));
    return *plain;
  }
  void make(std::unique_ptr<connection_state>& into, const connection_options& with) {
    into = std::make_unique<connection_state>(resources, with, socket_address{}, socket_address{});
  }
  void check_is_new(const char* call) const {
    if (!is_used) return;
    throw_failure(errc::refused, call,
                  "this prepared connection was used already; prepare another");
  }
  void use() {
    check_is_new("connect");
    is_used = true;
    if (resources.executor.now() >= expires) {
      throw_failure(errc::timed_out, "connect",
                    "it was prepared more than 60 s ago; prepare another");
    }
  }
  task<connection> connect(std::string theirs);
  task<connection> connect_plain(queue_pair_info theirs);
};

}  // namespace detail

prepared_connection::prepared_connection(connection_resources resources,
                                         const connection_options& options)
    : state_{std::make_unique<detail::prepared_state>(resources, options)} {}
prepared_connection::prepared_connection(prepared_connection&&) noexcept = default;
prepared_connection& prepared_connection::operator=(prepared_connection&&) noexcept = default;
prepared_connection::~prepared_connection() = default;

std::string prepared_connection::info() const {
  state_->check_is_new("info");
  return detail::info_text(state_->of_cordma().local_hello);
}

task<connection> prepared_connection::connect(std::string_view theirs) {
  return logged(state_->resources.log, state_->connect(std::string{theirs}));
}

task<connection> detail::prepared_state::connect(std::string theirs) {
  use();
  const handshake::hello hello = detail::read_info(theirs);
  std::unique_ptr<detail::connection_state> mine = (of_cordma(), std::move(made));
  const handshake::nonce ours = mine->local_hello.nonce;
  if (hello.nonce == ours)
    detail::throw_failure(errc::bad_handshake, "connect", "the information is this side's own");
  if (!resources.bootstraps.infos.add(hello.nonce, resources.executor.now(),
                                      prepared_connection::lifetime)) {
    detail::throw_failure(errc::refused, "connect",
                          "the peer's information was used already; ask for another");
  }
  co_await find_route(*mine, hello);
  mine->prepost();
  mine->agree(hello, handshake::side::equal, proof_of(hello.nonce, ours), patient_timeout(options));
  if (!mine->agent) {
    detail::throw_failure(errc::incompatible_peer, "connect",
                          "the peer has no agent of this version");
  }
  byte_channel& bytes = mine->agent->start_bytes();
  mine->agent->send_proof(proof_of(ours, hello.nonce));
  const auto answer = co_await as_result(
      with_timeout(mine->proved(), options.connect_timeout, &resources.executor));
  if (answer.is_cancelled()) throw cancelled{};
  if (answer.has_failure()) {
    failure why = answer.failure();
    const bool is_late = why.code == errc::timed_out || why.code == wc_errc::retry_exceeded;
    if (is_late) {
      why.code = errc::timed_out;
      why.call = "connect";
      why.detail = detail::detail_text(
          "the peer has not answered: does it connect by this side's present information, which "
          "is good once and for 60 s?");
    }
    throw error{why};
  }
  // The first side to connect spoke to nobody, and the device alone would say it again much later.
  // A packet after the lost one makes the peer send a NAK, and the device goes back at once (IBTA
  // 9.7.5, PSN sequence error).
  mine->agent->channel.probe();
  mine->watch_over(std::make_unique<detail::cm_link>(*mine, &bytes));
  co_return connection{std::move(mine)};
}

queue_pair_info prepared_connection::plain_info() const {
  state_->check_is_new("plain_info");
  const handshake::hello& hello = state_->of_any().local_hello;
  return {.qpn = hello.qpn,
          .psn = hello.psn,
          .lid = hello.lid,
          .gid = hello.gid,
          .mtu = hello.mtu,
          .rd_atomic_initiator = hello.rd_atomic_initiator,
          .rd_atomic_responder = hello.rd_atomic_responder,
          .allows_writes = hello.allows_writes};
}

task<connection> prepared_connection::connect_plain(queue_pair_info theirs) {
  return logged(state_->resources.log, state_->connect_plain(theirs));
}

task<connection> detail::prepared_state::connect_plain(queue_pair_info theirs) {
  use();
  std::unique_ptr<detail::connection_state> mine = (of_any(), std::move(plain));
  handshake::hello hello = mine->local_hello;  // The peer is on the same kind of network.
  hello.service = handshake::peer_of(hello.service);
  hello.qpn = theirs.qpn;
  hello.psn = theirs.psn;
  hello.lid = theirs.lid;
  hello.gid = theirs.gid;
  hello.mtu = theirs.mtu;
  hello.rd_atomic_initiator = theirs.rd_atomic_initiator;
  hello.rd_atomic_responder = theirs.rd_atomic_responder;
  hello.allows_writes = theirs.allows_writes;
  hello.pkey |= handshake::pkey_full;  // The caller knows that the peer is of this partition.
  hello.library = "";
  static_cast<void>(handshake::decode(handshake::encode(hello)));  // Checks each field.
  co_await find_route(*mine, hello);
  mine->prepost();
  mine->agree(hello, handshake::side::equal);
  mine->watch_over(std::make_unique<detail::cm_link>(*mine, nullptr));
  co_return connection{std::move(mine)};
}

}  // namespace cordma
