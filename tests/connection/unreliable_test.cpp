// Connections over UC: what they carry, what they refuse, and how they notice a peer's end.
#include "support/unreliable.hpp"
#include "connection/connection_state.hpp"
#include "connection/link.hpp"
#include "connection/shake_hands.hpp"
#include "queue/send_queue.hpp"
#include "support/allocations.hpp"
#include "support/connected_pair.hpp"
#include "support/cut_link.hpp"
#include "support/skip.hpp"
#include "support/some_hello.hpp"
#include "support/thread_sanitizer.hpp"
#include "support/trapped_memory.hpp"
#include "support/until.hpp"

#include <cordma/connection/prepared_connection.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/rpc/client.hpp>
#include <cordma/rpc/server.hpp>
#include <cordma/security/credentials.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::connected_pair;
using test::unreliable;

namespace {

connected_pair unreliable_pair(const connection_options& options = unreliable()) {
  return {{}, options, options};
}

/// Connects two sides by information that the test carries.
std::pair<connection, connection> carried(runtime& rt, const connection_options& options) {
  prepared_connection one = rt.prepare_connection(options);
  prepared_connection other = rt.prepare_connection(options);
  auto [a, b] = rt.run(when_all(one.connect(other.info()), other.connect(one.info())));
  return {std::move(a), std::move(b)};
}

std::pair<connection, connection> plain(runtime& rt, const connection_options& options) {
  prepared_connection one = rt.prepare_connection(options);
  prepared_connection other = rt.prepare_connection(options);
  auto [a, b] = rt.run(
      when_all(one.connect_plain(other.plain_info()), other.connect_plain(one.plain_info())));
  return {std::move(a), std::move(b)};
}

template <class Op>
failure why_not(runtime& rt, Op&& op) {
  const auto outcome = rt.run(as_result(std::forward<Op>(op)));
  return outcome.has_failure() ? outcome.failure() : failure{};
}

/// Connects as a client, and shows the client's inside.
task<connection> connect_openly(runtime& rt, endpoint server, detail::connection_state*& inside) {
  const socket_address to = socket_address::loopback(server.port);
  detail::link peer_link{co_await stream_socket::connect(rt.executor(), to)};
  const connection_options options = unreliable();
  auto state = std::make_unique<detail::connection_state>(rt.resources(), options, peer_link.local,
                                                          peer_link.peer);
  inside = state.get();
  const handshake::start start = detail::make_start(options);
  state->local_hello.nonce = start.nonce;
  co_await test::say(peer_link.channel(), handshake::encode(start));
  co_return co_await detail::agree_as_client(state, peer_link);
}

}  // namespace

TEST_CASE("over UC messages and writes arrive, with immediates", "[connection][device]") {
  connected_pair p = unreliable_pair();
  CHECK(p.client.verbs().type() == verbs::queue_pair_type::uc);
  test::check_that_uc_carries_all(p.rt, p.client, p.server);
  test::check_that_uc_carries_all(p.rt, p.server, p.client);
  p.rt.run(when_all(p.client.close(), p.server.close()));
  CHECK_FALSE(p.client.is_open());
}

TEST_CASE("sides that move the information themselves connect over UC", "[connection][device]") {
  runtime rt{test::on_test_device()};
  auto [client, server] = carried(rt, unreliable());
  test::check_that_uc_carries_all(rt, client, server);
  test::check_that_uc_carries_all(rt, server, client);
}

TEST_CASE("a peer that is not cordma can be reached over UC", "[connection][device]") {
  runtime rt{test::on_test_device()};
  auto [client, server] = plain(rt, unreliable());
  test::check_that_uc_carries_all(rt, client, server);
  rt.run(when_all(client.close(), server.close()));
}

TEST_CASE("keys bind a connection over UC to who the peer is", "[connection][device]") {
  const credentials key = credentials::psk({"uc", std::vector(32, std::byte{7})});
  connection_options options = unreliable();
  options.credentials = &key;
  connected_pair p = unreliable_pair(options);
  CHECK(p.client.peer_identity().kind == authentication::psk);
  test::check_that_uc_carries_all(p.rt, p.client, p.server);
}

TEST_CASE("over UC a READ or an atomic is refused before it is posted", "[connection][device]") {
  connected_pair p = unreliable_pair();
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(64);
  const remote_mr_slice remote = memory.remote_slice();
  const std::uint32_t posted = p.client.qp().sends().posted_total();
  for (const failure& why : {why_not(p.rt, p.client.read(memory.slice(8, 8), remote.slice(0, 8))),
                             why_not(p.rt, p.client.compare_swap(remote.slice(0, 8), 0, 1)),
                             why_not(p.rt, p.client.fetch_add(remote.slice(0, 8), 1))}) {
    CHECK(why.code == make_error_code(errc::not_supported));
    CHECK_THAT(why.to_string(), Catch::Contains("UC"));
  }
  CHECK(p.client.qp().sends().posted_total() == posted);
  CHECK(p.client.is_open());
}

TEST_CASE("over UC nothing is lent or borrowed, and no stream or client is made",
          "[connection][device]") {
  connected_pair p = unreliable_pair();
  CHECK_FALSE(p.client.has_agent());
  CHECK(p.client.agent() == nullptr);
  for (const failure& why :
       {why_not(p.rt, p.client.request_remote_mr(64)),
        why_not(p.rt, p.client.send_local_mr(p.rt.memory().allocate_zeroed(64))),
        why_not(p.rt, p.client.send_remote_mr(remote_mr{})),
        why_not(p.rt, p.client.receive_local_mr()), why_not(p.rt, p.client.receive_remote_mr())}) {
    CHECK(why.code == make_error_code(errc::not_supported));
    CHECK_THAT(why.to_string(), Catch::Contains("connection_options::transport"));
  }
  CHECK_THROWS_WITH(message_stream{std::move(p.client)},
                    Catch::Contains("connection_options::transport"));
  CHECK_THROWS_WITH(rpc::client{std::move(p.server)},
                    Catch::Contains("connection_options::transport"));
}

TEST_CASE("over UC no calls are served, and the refusal names the way out",
          "[connection][device]") {
  connected_pair p = unreliable_pair();
  rpc::server server;
  const failure why = why_not(p.rt, server.serve(std::move(p.server)));
  CHECK(why.code == make_error_code(errc::not_supported));
  CHECK_THAT(why.to_string(), Catch::Contains("connection_options::transport"));
}

TEST_CASE("over UC a peer whose agent asks for memory has broken the protocol",
          "[connection][device]") {
  connection_options generous = unreliable();
  generous.agent.lending.bytes_max = 1 << 20;
  runtime rt{test::on_test_device()};
  listener acceptor = rt.listen({}, {}, generous);
  detail::connection_state* inside = nullptr;
  auto [client, server] =
      rt.run(when_all(connect_openly(rt, acceptor.local_endpoint(), inside), acceptor.accept()));
  CHECK(why_not(rt, inside->agent->borrows.request(64, {})).code ==
        make_error_code(errc::disconnected));
  REQUIRE(server.why_lost());
  CHECK_THAT(server.why_lost()->to_string(), Catch::Contains("which only RC has"));
}

TEST_CASE("a peer whose transport differs is refused, and both are named", "[connection][device]") {
  const bool is_server_uc = GENERATE(false, true);
  const connection_options of_client = is_server_uc ? connection_options{} : unreliable();
  const connection_options of_server = is_server_uc ? unreliable() : connection_options{};
  runtime rt{test::on_test_device()};
  listener acceptor = rt.listen({}, {}, of_server);
  const failure told = why_not(rt, rt.connect(acceptor.local_endpoint(), of_client));
  CHECK(told.code == make_error_code(errc::incompatible_peer));
  CHECK_THAT(told.to_string(), Catch::Contains(is_server_uc ? "transport UC here, RC there"
                                                            : "transport RC here, UC there"));
  prepared_connection one = rt.prepare_connection(of_client);
  prepared_connection other = rt.prepare_connection(of_server);
  CHECK(why_not(rt, one.connect(other.info())).code == make_error_code(errc::incompatible_peer));
}

TEST_CASE("a message over UC that finds no receive is lost, and the next one arrives",
          "[connection][device]") {
  connected_pair p = unreliable_pair();
  test::check_that_a_lost_message_is_lost(p.rt, p.client, p.server);
}

TEST_CASE("a message over UC that loses one of its packets is lost whole, and the next arrives",
          "[connection][device]") {
  if (!test::is_soft()) CORDMA_SKIP("the device reads a message itself, so nobody stops amid one");
  if (CORDMA_TEST_THREAD_SANITIZER) CORDMA_SKIP("a handler of a signal allocates");
  connected_pair p = unreliable_pair();
  constexpr std::size_t long_bytes = std::size_t{1} << 20;
  test::trapped_memory out{p.rt.memory(), long_bytes};
  local_mr in = p.rt.memory().allocate_zeroed(long_bytes);
  std::ranges::fill(out.memory().bytes(), std::byte{1});
  p.server.post_recv(in.slice());
  out.arm(long_bytes / 2, [&] { test::cut_link(p.server.verbs(), true); });
  CHECK(p.rt.run(p.client.send(out.memory())) == long_bytes);
  CHECK(in.bytes().front() == std::byte{1});
  CHECK(in.bytes().back() == std::byte{0});
  test::cut_link(p.server.verbs(), false);
  std::ranges::fill(out.memory().bytes(), std::byte{2});
  const auto [sent, message] = p.rt.run(
      when_all(p.client.send(out.memory().slice(0, long_bytes / 4 * 3)), p.server.next_message()));
  CHECK(message.size_bytes == long_bytes / 4 * 3);
  CHECK(std::ranges::count(in.bytes(), std::byte{2}) == std::ptrdiff_t(message.size_bytes));
  CHECK(p.server.is_open());
}

TEST_CASE("a write over UC that the peer does not allow is lost, and the connection stays",
          "[connection][device]") {
  connected_pair p = unreliable_pair();
  local_mr target = p.rt.memory(verbs::access::remote_read).allocate_zeroed(8);
  local_mr from = p.rt.memory().allocate_zeroed(8);
  from.bytes()[0] = std::byte{1};
  p.rt.run(p.client.write(from.slice(), target.remote_slice()));
  test::check_that_uc_carries_all(p.rt, p.client, p.server);
  CHECK(target.bytes()[0] == std::byte{0});
}

TEST_CASE("over UC a wait ends when the peer drops the connection", "[connection][device]") {
  connected_pair p = unreliable_pair();
  p.client = {};
  CHECK(why_not(p.rt, p.server.next_message()).code == make_error_code(errc::disconnected));
  CHECK_FALSE(p.server.is_open());
  CHECK_FALSE(p.server.was_closed_by_peer());
}

TEST_CASE("over UC the heartbeat finds a peer that has gone, where no socket tells",
          "[connection][device]") {
  connection_options options = unreliable();
  options.heartbeat.interval = 20ms;
  options.timeout = GENERATE(std::uint8_t{10}, std::uint8_t{31});
  options.connect_timeout = 20ms;
  runtime rt{test::on_test_device()};
  auto [client, server] = carried(rt, options);
  client = {};
  const failure why = why_not(rt, server.next_message());
  CHECK((why.code == errc::disconnected || why.code == wc_errc::retry_exceeded));
  CHECK_FALSE(server.is_open());
  CHECK_FALSE(server.was_closed_by_peer());
}

TEST_CASE("over UC a peer that answers the heartbeat stays, however little is sent",
          "[connection][device]") {
  manual_clock clock;
  connection_options options = unreliable();
  options.heartbeat.interval = 1s;
  connected_pair p{test::by_hand(clock), options, options};
  const auto frames = [&] { return p.rt.metrics().transfer.of(request_kind::agent_send).posted; };
  for (unsigned beats = 1; beats <= 10; ++beats) {
    const auto before = frames();
    clock.advance(1s);
    p.rt.run(test::until(p.rt.executor(), [&] { return frames() >= before + 2; }));
  }
  CHECK(p.client.is_open());
  CHECK(p.server.is_open());
}

TEST_CASE("over UC a message in a warm program allocates nothing", "[connection][device]") {
  if (!support::counts_allocations()) CORDMA_SKIP("its malloc is not counted");
  connected_pair p = unreliable_pair();
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(64);
  const auto exchange = [&](unsigned rounds) -> task<> {
    for (unsigned n = 0; n < rounds; ++n) {
      p.server.post_recv(memory.slice(0, 16));
      co_await p.client.send(memory.slice(16, 16));
      static_cast<void>(co_await p.server.next_message());
      co_await p.client.write(memory.slice(16, 16), memory.remote_slice().slice(32, 16));
    }
  };
  p.rt.run(exchange(8));
  const auto before = support::thread_allocation_count();
  p.rt.run(exchange(100));
  CHECK(support::thread_allocation_count() == before);
}
