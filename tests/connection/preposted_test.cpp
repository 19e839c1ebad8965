// Receives that a connection has before its peer may send.
#include "impostor.hpp"
#include "support/connected_pair.hpp"
#include "support/until.hpp"

#include <cordma/connection/prepared_connection.hpp>
#include <cordma/messages/message_stream.hpp>

#include <catch2/catch.hpp>

#include <cstring>
#include <string>
#include <utility>

using namespace cordma;
using test::impostor;
using namespace std::chrono_literals;

namespace {

/// Two receives; a peer that is found not ready breaks the connection at once.
connection_options preposted(std::uint32_t count = 2, std::size_t bytes = 64) {
  connection_options o = test::never_not_ready();
  o.preposted = count;
  o.preposted_bytes = bytes;
  return o;
}

task<> say(connection& from, std::string_view text) {
  local_mr memory = from.memory().allocate_zeroed(64);
  std::memcpy(memory.bytes().data(), text.data(), text.size());
  co_await from.send(memory.slice(0, text.size()));
}

std::string text_of(const message& m) {
  const auto bytes = m.payload().bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("messages that a client sends before the program accepts it are there afterwards",
          "[connection][device]") {
  const bool is_uc = GENERATE(false, true);
  connection_options options = preposted();
  if (is_uc) options.transport = verbs::queue_pair_type::uc;
  runtime rt{test::on_test_device()};
  listener acceptor = rt.listen({}, {}, options);
  connection client = rt.run(rt.connect(acceptor.local_endpoint(), options));
  rt.run(say(client, "first"));
  rt.run(say(client, "second"));
  connection server = rt.run(acceptor.accept());
  CHECK(text_of(rt.run(server.next_message())) == "first");
  CHECK(text_of(rt.run(server.next_message())) == "second");
}

TEST_CASE("a listener's message finds a receive of a client that has not heard yet",
          "[connection][device]") {
  const credentials key = test::some_key();
  connection_options options = preposted();
  options.credentials = GENERATE(false, true) ? &key : nullptr;
  runtime rt{test::on_test_device()};
  listener acceptor = rt.listen({}, {}, options);
  const auto greet = [&]() -> task<connection> {
    connection server = co_await acceptor.accept();
    co_await say(server, "welcome");
    co_return server;
  };
  auto [client, server] = rt.run(when_all(rt.connect(acceptor.local_endpoint(), options), greet()));
  CHECK(text_of(rt.run(client.next_message())) == "welcome");
}

TEST_CASE("a plain peer by information may send before this side knows it",
          "[connection][device]") {
  connection_options options = preposted();
  options.timeout = 8;  // 1 ms: the first packets find a queue pair that takes nothing.
  runtime rt{test::on_test_device()};
  prepared_connection one = rt.prepare_connection(options);
  prepared_connection other = rt.prepare_connection(options);
  const queue_pair_info of_one = one.plain_info();
  connection early = rt.run(one.connect_plain(other.plain_info()));
  connection late;
  const auto follow = [&]() -> task<> { late = co_await other.connect_plain(of_one); };
  rt.run(when_all(say(early, "early"), follow()));
  CHECK(text_of(rt.run(late.next_message())) == "early");
}

TEST_CASE("a preposted receive's buffer is posted again as it is", "[connection][device]") {
  test::connected_pair p{{}, preposted(1), preposted(1)};
  for (const std::string text : {"one", "two", "three"}) {
    p.rt.run(say(p.client, text));
    const message m = p.rt.run(p.server.next_message());
    CHECK(text_of(m) == text);
    p.server.post_recv({m.slices.begin(), m.slices.size()});
  }
}

TEST_CASE("preposted receives without bytes take WRITEs with immediate data",
          "[connection][device]") {
  test::connected_pair p{{}, preposted(2, 0), preposted(2, 0)};
  local_mr target = p.rt.memory(test::all_access).allocate_zeroed(8);
  local_mr source = p.rt.memory().allocate_zeroed(8);
  p.rt.run(p.client.write_with_imm(source.slice(), target.remote_slice(), 7));
  const message m = p.rt.run(p.server.next_message());
  CHECK(m.is_write);
  CHECK(m.immediate == 7u);
  CHECK(m.slices.empty());
}

TEST_CASE("the memory of preposted receives goes with the connection, and not before",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  const auto in_use = [&] { return rt.memory().statistics().in_use_bytes; };
  const std::size_t before = in_use();
  listener acceptor = rt.listen({}, {}, preposted(2, std::size_t{1} << 20));
  auto [client, server] =
      rt.run(when_all(rt.connect(acceptor.local_endpoint()), acceptor.accept()));
  rt.run(say(client, "last"));
  const message m = rt.run(server.next_message());
  rt.run(when_all(client.close(), server.close()));
  CHECK(text_of(m) == "last");
  CHECK(in_use() >= before + (std::size_t{2} << 20));
  client = {};
  server = {};
  rt.run(test::until(rt.executor(), [&] { return rt.executor().closer().running() == 0; }));
  CHECK(in_use() == before);
}

TEST_CASE("a message before the peer's proof finds no receive", "[connection][device][N2]") {
  const credentials key = test::some_key();
  connection_options options = test::lender_with(key);
  options.rnr_retry = 0;
  connection_options of_server = options;
  of_server.preposted = 2;
  runtime rt{test::on_test_device()};
  listener acceptor = rt.listen({}, {}, of_server);
  impostor early;
  early.proves = false;
  (GENERATE(false, true) ? early.sends_accepted : early.sends_unproved) = true;
  const auto got = rt.run(as_result(test::knock(rt, acceptor, options, early)));
  REQUIRE(got.has_failure());
  CHECK(got.failure().code == make_error_code(wc_errc::rnr_retry_exceeded));
  CHECK(acceptor.counters().completed == 0);
}

TEST_CASE("a message between a peer's proof and its last word finds a receive",
          "[connection][device]") {
  const credentials key = test::some_key();
  connection_options options = test::lender_with(key);
  options.rnr_retry = 0;
  connection_options of_server = options;
  of_server.preposted = 2;
  runtime rt{test::on_test_device()};
  listener acceptor = rt.listen({}, {}, of_server);
  bool is_sent = false;
  impostor early;
  early.after_early_message = [&] { is_sent = true; };
  const impostor::outcome got = rt.run(test::knock(rt, acceptor, options, early));
  CHECK(is_sent);
  CHECK(got.has_memory);
}

TEST_CASE("a side without memory for its receives refuses, and both hear why",
          "[connection][device]") {
  constexpr std::size_t limit = std::size_t{4} << 20;
  const credentials key = test::some_key();
  connection_options modest;
  modest.credentials = GENERATE(false, true) ? &key : nullptr;
  connection_options greedy = modest;
  greedy.preposted = 2;
  greedy.preposted_bytes = limit;
  runtime_options limited;
  limited.memory.limit_bytes = limit;
  runtime rt{test::on_test_device(std::move(limited))};
  const bool is_listener = GENERATE(false, true);
  listener acceptor = rt.listen({}, {}, is_listener ? greedy : modest);
  const failure why =
      rt.run(test::why_none(rt.connect(acceptor.local_endpoint(), is_listener ? modest : greedy)));
  CHECK(why.code == make_error_code(is_listener ? errc::refused : errc::limit_exceeded));
  CHECK_THAT(why.to_string(), Catch::Contains("limit_bytes"));
  const auto is_told = [&] { return acceptor.counters().rejected == 1; };
  rt.run(test::until(rt.executor(), is_told));
  CHECK_THAT(acceptor.last_rejection()->to_string(), Catch::Contains("limit_bytes"));
}

TEST_CASE("a stream is not made of a connection with preposted receives", "[connection][device]") {
  test::connected_pair p{{}, preposted(), preposted()};
  CHECK_THROWS_WITH(
      message_stream{std::move(p.client)},
      Catch::Contains("2 receives") && Catch::Contains("leave connection_options::preposted 0"));
}
