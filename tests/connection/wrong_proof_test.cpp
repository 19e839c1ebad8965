// Peers with the right key whose queue pairs are not those that their hello names, as far as they
// can prove.
#include "connection/shake_hands.hpp"

#include "connection/connection_info.hpp"
#include "impostor.hpp"
#include "support/connected_pair.hpp"
#include "support/leaks.hpp"
#include "support/until.hpp"
#include "verbs/gid.hpp"

#include <cordma/connection/prepared_connection.hpp>
#include <cordma/queue/shared_receives.hpp>

#include <catch2/catch.hpp>

#include <cstring>
#include <optional>
#include <utility>

using namespace cordma;
using namespace std::chrono_literals;
using test::impostor;
using test::lender_with;

namespace {

/// The impostor's side of a connection to its own door.
task<impostor::outcome> open_to(runtime& rt, stream_listener& acceptor, const credentials& key,
                                impostor said) {
  detail::link peer_link{co_await acceptor.accept()};
  const connection_options options = lender_with(key);
  detail::connection_state state{rt.resources(), options, peer_link.local, peer_link.peer};
  static_cast<void>(co_await bootstrap::read_start(peer_link.channel()));
  co_await peer_link.secure(&key, tls_role::server);
  co_return co_await said.speak(state, peer_link, tls_role::server);
}

struct lie {
  impostor of;
  const char* says;
};

/// Another GID of this host's, of the same IP version, so that the way there is allowed and found.
/// By LID the GID is no address, so that nothing but the proof tells.
lie with_other_gid(runtime& rt, const ibv_gid& own) {
  const verbs::port_info port = rt.context().active_port();
  for (const verbs::gid_entry& other : rt.context().gid_table(port.number)) {
    const bool is_other =
        !verbs::same_gid(other.gid, own) && std::memcmp(other.gid.raw, own.raw, 12) == 0;
    if (!is_other) continue;
    impostor of;
    of.change = [gid = other.gid](impostor::frame& hello) {
      std::memcpy(hello.data() + 16, gid.raw, sizeof gid.raw);
    };
    return {of, "the wrong proof"};
  }
  const bool is_by_lid = !port.is_ethernet();
  return {impostor::at(31), is_by_lid ? "the wrong proof" : "names the GID"};
}

lie lie_number(int n, runtime& rt, const ibv_gid& own, const test::other_connection& other,
               tls_role role) {
  switch (n) {
    case 0: return {impostor::at(32), "the wrong proof"};   // QPN
    case 1: return {impostor::at(36), "the wrong proof"};   // PSN
    case 2: return {impostor::at(108), "the wrong proof"};  // key of the flush word
    case 3: return {impostor::at(128), "the wrong proof"};  // private data
    case 4: return with_other_gid(rt, own);
    case 5: return {{.proves = false}, "a frame before the peer has proved who it is"};
    default: {
      const auto& end = other.ends[role == tls_role::client ? 0 : 1];
      return {{.prover = end.get()}, "the wrong proof"};
    }
  }
}
constexpr int lies = 7;

}  // namespace

TEST_CASE("a client whose proof is not over what its hello said gets no connection and no memory",
          "[connection][device][N2]") {
  test::connected_pair p;  // Makes what a runtime makes once.
  runtime& rt = p.rt;
  const credentials key = test::some_key();
  const test::other_connection other{rt.executor(), key};
  listener acceptor = rt.listen({}, {}, lender_with(key));
  const std::string before = test::holdings();
  const int n = GENERATE(range(0, lies));
  const lie told = lie_number(n, rt, p.client.local_hello().gid, other, tls_role::client);
  const impostor::outcome got = rt.run(test::knock(rt, acceptor, lender_with(key), told.of));
  CHECK_FALSE(got.has_memory);
  CHECK(got.told.code != std::error_code{});
  CHECK(acceptor.counters().rejected == 1);
  CHECK(acceptor.counters().completed == 0);
  REQUIRE(acceptor.last_rejection());
  CHECK_THAT(acceptor.last_rejection()->to_string(), Catch::Contains(told.says));
  CHECK(test::settled_holdings(rt.executor(), before) == before);
  auto [client, server] =
      rt.run(when_all(rt.connect(acceptor.local_endpoint(), lender_with(key)), acceptor.accept()));
  CHECK(client.is_open());
}

TEST_CASE("a listener whose proof is not over what its hello said gets no connection and no memory",
          "[connection][device][N2]") {
  test::connected_pair p;
  runtime& rt = p.rt;
  const credentials key = test::some_key();
  const test::other_connection other{rt.executor(), key};
  stream_listener acceptor{rt.executor(), socket_address::loopback(0)};
  const std::string before = test::holdings();
  const int n = GENERATE(range(0, lies));
  const lie told = lie_number(n, rt, p.client.local_hello().gid, other, tls_role::server);
  const endpoint where{"127.0.0.1", acceptor.local_address().port()};
  {
    const auto [got, why] = rt.run(when_all(open_to(rt, acceptor, key, told.of),
                                            test::why_none(rt.connect(where, lender_with(key)))));
    CHECK_FALSE(got.has_memory);
    CHECK_THAT(why.to_string(), Catch::Contains(told.says));
  }
  CHECK(test::settled_holdings(rt.executor(), before) == before);
}

TEST_CASE("a peer with the right proof gets a connection and memory, whichever side it is",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  const credentials key = test::some_key();
  SECTION("a client") {
    listener acceptor = rt.listen({}, {}, lender_with(key));
    const auto is_made = [&] { return acceptor.counters().completed == 1; };
    const auto [got, made] = rt.run(when_all(test::knock(rt, acceptor, lender_with(key), {}),
                                             test::until(rt.executor(), is_made)));
    CHECK(got.has_memory);
    CHECK(got.told.code == std::error_code{});
  }
  SECTION("a listener") {
    stream_listener acceptor{rt.executor(), socket_address::loopback(0)};
    const endpoint where{"127.0.0.1", acceptor.local_address().port()};
    const auto [got, made] =
        rt.run(when_all(open_to(rt, acceptor, key, {}), rt.connect(where, lender_with(key))));
    CHECK(got.has_memory);
  }
}

TEST_CASE("what a peer sends before its proof does not come into a stock of many connections",
          "[connection][device][N2]") {
  runtime rt{test::on_test_device()};
  const credentials key = test::some_key();
  connection_options options = lender_with(key);
  shared_receives& pool =
      rt.share_receives({.buffers = 4, .buffer_bytes = 64, .for_messages = true});
  options.receives_from = &pool;
  listener acceptor = rt.listen({}, {}, options);
  const impostor::outcome got =
      rt.run(test::knock(rt, acceptor, lender_with(key), {.sends_unproved = true}));
  CHECK(got.told.code != std::error_code{});
  CHECK(acceptor.counters().completed == 0);
  CHECK(acceptor.counters().rejected == 1);
  auto [client, server] =
      rt.run(when_all(rt.connect(acceptor.local_endpoint(), lender_with(key)), acceptor.accept()));
  local_mr out = rt.memory().allocate_zeroed(8);
  auto [sent, m] = rt.run(when_all(client.send(out.slice()), pool.next_message()));
  CHECK(m.qpn() == server.verbs().num());
}

TEST_CASE("a message before the end of a handshake comes into a stock when the handshake has ended",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  const credentials key = test::some_key();
  connection_options options = lender_with(key);
  shared_receives& pool =
      rt.share_receives({.buffers = 4, .buffer_bytes = 64, .for_messages = true});
  options.receives_from = &pool;
  listener acceptor = rt.listen({}, {}, options);
  bool is_sent = false, is_taken = false;
  const auto take = [&]() -> task<> {
    static_cast<void>(co_await pool.next_message());
    is_taken = true;
  };
  impostor early;
  early.after_early_message = [&] {
    is_sent = true;
    CHECK_FALSE(is_taken);
  };
  const auto [got, taken] =
      rt.run(when_all(test::knock(rt, acceptor, lender_with(key), early), take()));
  CHECK(got.has_memory);
  CHECK(is_sent);
  CHECK(is_taken);
}

TEST_CASE("a peer that proves nothing and says nothing is let go at the deadline",
          "[connection][device][N2]") {
  runtime rt{test::on_test_device()};
  const credentials key = test::some_key();
  const impostor silent{.proves = false, .asks = false};
  SECTION("a client") {
    listener acceptor = rt.listen({}, {.handshake_timeout = 100ms}, lender_with(key));
    const impostor::outcome got = rt.run(test::knock(rt, acceptor, lender_with(key), silent));
    CHECK(got.told.code == make_error_code(errc::timed_out));
    CHECK(acceptor.counters().completed == 0);
  }
  SECTION("a listener") {
    stream_listener acceptor{rt.executor(), socket_address::loopback(0)};
    const endpoint where{"127.0.0.1", acceptor.local_address().port()};
    connection_options options = lender_with(key);
    options.connect_timeout = 100ms;
    const auto [got, why] = rt.run(
        when_all(open_to(rt, acceptor, key, silent), test::why_none(rt.connect(where, options))));
    CHECK(why.code == make_error_code(errc::timed_out));
  }
}

TEST_CASE("who has read one side's information only does not get its connection",
          "[connection][device][N2]") {
  connection_options options;
  options.connect_timeout = 100ms;
  options.timeout = 10;
  runtime rt{test::on_test_device()};
  prepared_connection one = rt.prepare_connection(options);
  const prepared_connection meant = rt.prepare_connection(options);
  const std::string of_one = one.info();
  SECTION("a third side that connects as usual") {
    prepared_connection third = rt.prepare_connection(options);
    const auto [of_first, of_third] =
        rt.run(when_all(as_result(one.connect(meant.info())), as_result(third.connect(of_one))));
    REQUIRE(of_first.has_failure());
    CHECK_THAT(of_first.failure().to_string(),
               Catch::Contains("does it connect by this side's present information"));
    CHECK(of_third.has_failure());
  }
  SECTION("a third side that has the queue pairs of the one that is meant, and not its nonce") {
    detail::connection_state third{rt.resources(), options, {}, {}};
    handshake::hello told = third.local_hello;
    told.nonce = handshake::random_nonce();
    const handshake::hello hello = detail::read_info(of_one);
    const auto speak = [&]() -> task<> {
      third.agree(hello, handshake::side::equal);
      agent_protocol::payload both{};
      std::ranges::copy(hello.nonce, both.begin() + sizeof(handshake::nonce));
      third.agent->send_proof(both);
      co_return;
    };
    const auto [of_first, said] =
        rt.run(when_all(as_result(one.connect(detail::info_text(told))), speak()));
    REQUIRE(of_first.has_failure());
    CHECK_THAT(of_first.failure().to_string(), Catch::Contains("the wrong proof"));
  }
}
