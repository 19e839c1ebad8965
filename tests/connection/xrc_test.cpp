// Connections over XRC: an initiator that sends to the pools of a domain, and a target.
#include "support/xrc.hpp"
#include "connection/connection_state.hpp"
#include "queue/send_queue.hpp"
#include "support/allocations.hpp"
#include "support/skip.hpp"

#include <cordma/connection/prepared_connection.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/rpc/client.hpp>
#include <cordma/security/credentials.hpp>

#include <catch2/catch.hpp>

#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::why_failed;
using test::word_of;
using test::xrc_host;
using test::xrc_pair;

namespace {

void check_that_messages_arrive(runtime& rt, connection& from, connection& to, xrc_host& host) {
  local_mr out = rt.memory().allocate_zeroed(4);
  for (shared_receives* const pool : {&host.pool, &host.other, &host.pool}) {
    test::put(out, pool->num());
    auto [sent, m] = rt.run(when_all(from.to(pool->num()).send(out.slice()), pool->next_message()));
    CHECK(sent == 4);
    CHECK(word_of(m) == pool->num());
    CHECK(m.qpn() == to.verbs().num());
  }
}

}  // namespace

TEST_CASE("one initiator sends to each pool of the target's domain", "[connection][device]") {
  CORDMA_NEED_XRC();
  xrc_pair p;
  CHECK(p.from.verbs().type() == verbs::queue_pair_type::xrc_initiator);
  CHECK(p.to.verbs().type() == verbs::queue_pair_type::xrc_target);
  CHECK(p.host.pool.num() != p.host.other.num());
  check_that_messages_arrive(p.rt, p.from, p.to, p.host);
  auto [sent, m] =
      p.rt.run(when_all(p.from.to(p.host.other.num()).send_with_imm(const_local_mr_slice{}, 7),
                        p.host.other.next_message()));
  CHECK(m.immediate() == 7u);
  CHECK(m.size_bytes() == 0);
  p.rt.run(when_all(p.from.close(), p.to.close()));
  CHECK(p.to.was_closed_by_peer());
}

TEST_CASE("WRITEs, READs and atomics go to the memory of the pool's process",
          "[connection][device]") {
  CORDMA_NEED_XRC();
  xrc_pair p;
  local_mr there = p.rt.memory(test::all_access).allocate_zeroed(64);
  local_mr here = p.rt.memory(test::all_access).allocate_zeroed(64);
  const auto words = [&](std::size_t n) { return there.remote_slice().slice(8 * n, 8); };
  auto requests = p.from.to(p.host.pool.num());
  test::put(here, 42);
  CHECK(p.rt.run(requests.write(here.slice(0, 8), words(1))) == 8);
  CHECK(there.bytes()[8] == std::byte{42});
  CHECK(p.rt.run(requests.read(here.slice(16, 8), words(1))) == 8);
  CHECK(here.bytes()[16] == std::byte{42});
  CHECK(p.rt.run(requests.fetch_add(words(1), 8)) == 42);
  CHECK(p.rt.run(requests.compare_swap(words(1), 50, 99)) == 50);
  CHECK(there.bytes()[8] == std::byte{99});
  auto [wrote, m] = p.rt.run(
      when_all(requests.write_with_imm(here.slice(0, 8), words(2), 5), p.host.pool.next_message()));
  CHECK(m.is_write());
  CHECK(m.immediate() == 5u);
  CHECK(there.bytes()[16] == std::byte{42});
}

TEST_CASE("requests over XRC are posted together, as handles, and in a group",
          "[connection][device]") {
  CORDMA_NEED_XRC();
  xrc_pair p;
  local_mr out = p.rt.memory().allocate_zeroed(8);
  test::put(out, 1);
  const const_local_mr_slice word = out.slice(0, 4);
  auto one = p.from.to(p.host.pool.num()).post(cordma::send(word));
  auto many = p.from.to(p.host.other.num()).post_all(cordma::send(word), cordma::send(word));
  p.rt.run(std::move(one));
  p.rt.run(std::move(many));
  p.rt.run(when_all(p.from.to(p.host.pool.num()).send(word),
                    p.from.to(p.host.other.num()).send(word),
                    p.from.to(p.host.pool.num()).send(word)));
  for (unsigned n = 0; n < 3; ++n) {
    CHECK(word_of(p.rt.run(p.host.pool.next_message())) == 1);
    CHECK(word_of(p.rt.run(p.host.other.next_message())) == 1);
  }
}

TEST_CASE("over XRC a request without a receive queue is refused before it is posted",
          "[connection][device]") {
  CORDMA_NEED_XRC();
  xrc_pair p;
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(8);
  const std::uint32_t posted = p.from.qp().sends().posted_total();
  for (const failure& why : {why_failed(p.rt, p.from.send(memory.slice())),
                             why_failed(p.rt, p.from.write(memory.slice(), memory.remote_slice())),
                             why_failed(p.rt, p.from.fetch_add(memory.remote_slice(), 1))}) {
    CHECK(why.code == make_error_code(errc::not_supported));
    CHECK_THAT(why.to_string(), Catch::Contains("connection::to"));
  }
  const failure atomic_write =
      why_failed(p.rt, p.from.to(p.host.pool.num()).atomic_write(memory.remote_slice(), 1));
  CHECK(atomic_write.code == make_error_code(errc::not_supported));
  CHECK_THAT(atomic_write.to_string(),
             Catch::Contains("receive queue " + std::to_string(p.host.pool.num())) &&
                 Catch::Contains("it needs RC"));
  CHECK(p.from.qp().sends().posted_total() == posted);
  CHECK(p.from.is_open());
}

TEST_CASE("a target sends nothing, and a connection over RC has no receive queues to name",
          "[connection][device]") {
  test::connected_pair rc;
  local_mr memory = rc.rt.memory().allocate_zeroed(8);
  const local_mr word = rc.rt.memory(test::all_access).allocate_zeroed(8);
  for (const failure& over_rc :
       {why_failed(rc.rt, rc.client.to(17).send(memory.slice())),
        why_failed(rc.rt, rc.client.to(17).atomic_write(word.remote_slice(), 1))}) {
    CHECK(over_rc.code == make_error_code(errc::not_supported));
    CHECK_THAT(over_rc.to_string(), Catch::Contains("connection::to"));
  }
  CORDMA_NEED_XRC();
  xrc_pair p;
  local_mr out = p.rt.memory().allocate_zeroed(8);
  const failure why = why_failed(p.rt, p.to.send(out.slice()));
  CHECK(why.code == make_error_code(errc::not_supported));
  CHECK_THAT(why.to_string(), Catch::Contains("a target sends none"));
  CHECK(why_failed(p.rt, p.to.to(p.host.pool.num()).send(out.slice())).code ==
        make_error_code(errc::not_supported));
  CHECK(p.to.is_open());
}

TEST_CASE("a receive queue's number that nobody has is an error that names it",
          "[connection][device]") {
  CORDMA_NEED_XRC();
  xrc_pair p;
  shared_receives& stranger = p.rt.share_receives(test::inbox(p.rt.open_xrc_domain()));
  const std::uint32_t number = GENERATE(true, false) ? stranger.num() : p.host.pool.num() + 1000;
  const failure why =
      why_failed(p.rt, p.from.to(number).send(p.rt.memory().allocate_zeroed(8).slice()));
  CHECK(why.code == make_error_code(wc_errc::remote_invalid_request));
  CHECK_THAT(why.to_string(), Catch::Contains("receive queue " + std::to_string(number)));
  CHECK_FALSE(p.from.is_open());
  p.rt.run(p.to.ended());
  CHECK_FALSE(p.to.is_open());
  // The pools serve others.
  auto [from, to] = p.host.connect();
  check_that_messages_arrive(p.rt, from, to, p.host);
}

TEST_CASE("over XRC nothing is lent or borrowed, and no stream or client is made",
          "[connection][device]") {
  CORDMA_NEED_XRC();
  xrc_pair p;
  CHECK_FALSE(p.from.has_agent());
  CHECK(why_failed(p.rt, p.from.request_remote_mr(64)).code ==
        make_error_code(errc::not_supported));
  CHECK_THAT(why_failed(p.rt, p.to.receive_remote_mr()).to_string(), Catch::Contains("needs RC"));
  CHECK_THROWS_WITH(message_stream{std::move(p.from)}, Catch::Contains("need RC"));
  CHECK_THROWS_WITH(rpc::client{std::move(p.to)}, Catch::Contains("need RC"));
}

TEST_CASE("keys bind both halves of XRC to who the peer is", "[connection][device]") {
  CORDMA_NEED_XRC();
  const credentials key = credentials::psk({"xrc", std::vector(32, std::byte{7})});
  connection_options options;
  options.credentials = &key;
  xrc_pair p{options};
  CHECK(p.to.peer_identity().kind == authentication::psk);
  check_that_messages_arrive(p.rt, p.from, p.to, p.host);
}

TEST_CASE("who connects may be the target, with and without keys", "[connection][device]") {
  CORDMA_NEED_XRC();
  const bool has_keys = GENERATE(false, true);
  const credentials key = credentials::psk({"xrc", std::vector(32, std::byte{7})});
  connection_options options;
  if (has_keys) options.credentials = &key;
  runtime rt{test::on_test_device()};
  xrc_host host{rt};
  connection_options from_listener = options;
  from_listener.transport = verbs::queue_pair_type::xrc_initiator;
  listener acceptor = rt.listen({}, {}, from_listener);
  auto [to, from] = rt.run(
      when_all(rt.connect(acceptor.local_endpoint(), host.as_target(options)), acceptor.accept()));
  check_that_messages_arrive(rt, from, to, host);
}

TEST_CASE("sides that move the information themselves connect over XRC, also plainly",
          "[connection][device]") {
  CORDMA_NEED_XRC();
  const bool is_plain = GENERATE(false, true);
  runtime rt{test::on_test_device()};
  xrc_host host{rt};
  prepared_connection one = rt.prepare_connection(test::initiator());
  prepared_connection two = rt.prepare_connection(test::target(host.domain));
  auto [from, to] = is_plain ? rt.run(when_all(one.connect_plain(two.plain_info()),
                                               two.connect_plain(one.plain_info())))
                             : rt.run(when_all(one.connect(two.info()), two.connect(one.info())));
  check_that_messages_arrive(rt, from, to, host);
}

TEST_CASE("halves that do not fit are refused, and both are named", "[connection][device]") {
  CORDMA_NEED_XRC();
  runtime rt{test::on_test_device()};
  xrc_host host{rt};
  const failure of_rc = why_failed(rt, rt.connect(host.acceptor.local_endpoint()));
  CHECK(of_rc.code == make_error_code(errc::incompatible_peer));
  CHECK_THAT(of_rc.to_string(), Catch::Contains("transport XRC target here, RC there"));
  const failure of_target =
      why_failed(rt, rt.connect(host.acceptor.local_endpoint(), test::target(host.domain)));
  CHECK_THAT(of_target.to_string(), Catch::Contains("XRC target here, XRC target there"));
}

TEST_CASE("a target stays in INIT until its peer has accepted", "[connection][device]") {
  CORDMA_NEED_XRC();
  runtime rt{test::on_test_device()};
  xrc_host host{rt};
  detail::connection_state to{rt.resources(), test::target(host.domain), {}, {}};
  connection_options hasty = test::initiator();
  hasty.timeout = 8;
  hasty.retry_cnt = 1;
  detail::connection_state from{rt.resources(), hasty, {}, {}};
  to.agree(from.local_hello, handshake::side::listener);
  CHECK(to.qp.verbs().query_state() == verbs::queue_pair_state::init);
  from.agree(to.local_hello, handshake::side::client);
  CHECK(from.qp.verbs().query_state() == verbs::queue_pair_state::rts);
  detail::xrc_requester early{from.qp.sends(), host.pool.num()};
  CHECK(why_failed(rt, early.send(const_local_mr_slice{})).code ==
        make_error_code(wc_errc::retry_exceeded));
  to.open();
  CHECK(to.qp.verbs().query_state() == verbs::queue_pair_state::rts);
  to.open();
  auto [honest, honest_target] = host.connect();
  check_that_messages_arrive(rt, honest, honest_target, host);
}

TEST_CASE("a flood takes no more than the pool, and who was kept out goes on",
          "[connection][device]") {
  CORDMA_NEED_XRC();
  connection_options impatient;
  impatient.rnr_retry = 0;
  xrc_pair p{impatient};
  auto [honest, to] = p.host.connect();
  for (std::uint32_t n = 0; n < p.host.pool.buffers(); ++n) p.rt.run(p.send(p.host.pool, n));
  const failure why = why_failed(p.rt, p.send(p.host.pool, 99));
  CHECK(why.code == make_error_code(wc_errc::rnr_retry_exceeded));
  CHECK_THAT(why.to_string(),
             Catch::Contains("receive queue " + std::to_string(p.host.pool.num())));
  p.rt.run(test::until(p.rt.executor(), [&] { return !p.to.is_open(); }));
  p.from = {};
  p.to = {};
  // The messages that arrived stay, in order, and its buffers serve the other sender.
  for (std::uint32_t n = 0; n < p.host.pool.buffers(); ++n)
    CHECK(word_of(p.rt.run(p.host.pool.next_message())) == n);
  check_that_messages_arrive(p.rt, honest, to, p.host);
}

TEST_CASE(
    "a message in a domain's pool that the program has no memory for stays, before all others",
    "[connection][device]") {
  CORDMA_NEED_XRC();
  xrc_pair p;
  local_mr to = p.rt.memory().allocate_zeroed(4);
  for (std::uint32_t n = 0; n < 3; ++n) p.rt.run(p.send(p.host.pool, n));
  const auto take = [&](std::size_t bytes) {
    return p.rt.run(as_result(p.host.pool.next_message_into(
        [&](const shared_receives::arrival&) { return to.first(bytes); })));
  };
  for (std::uint32_t n = 0; n < 3; ++n) {
    for (unsigned refused = 0; refused < 2; ++refused) {
      const auto little = take(3);
      REQUIRE(little.has_failure());
      CHECK(little.failure().code == make_error_code(errc::wrong_length));
    }
    REQUIRE(take(4).has_value());
    std::uint32_t value = 99;
    std::memcpy(&value, to.bytes().data(), sizeof value);
    CHECK(value == n);
  }
}

TEST_CASE("a message that is longer than the pool's buffers breaks its connection alone",
          "[connection][device]") {
  CORDMA_NEED_XRC();
  xrc_pair p;
  auto [honest, to] = p.host.connect();
  const local_mr out = p.rt.memory().allocate_zeroed(65);
  for (std::uint32_t n = 0; n < 2 * p.host.pool.buffers(); ++n) {
    auto [from, unused] = p.host.connect();
    const failure why = why_failed(p.rt, from.to(p.host.pool.num()).send(out.slice()));
    CHECK(why.code == make_error_code(wc_errc::remote_invalid_request));
  }
  check_that_messages_arrive(p.rt, honest, to, p.host);
}

TEST_CASE("a target's wait for the end ends when its initiator closes or is dropped",
          "[connection][device]") {
  CORDMA_NEED_XRC();
  const bool closes = GENERATE(false, true);
  const bool has_agent = GENERATE(false, true);
  xrc_pair p{has_agent ? connection_options{} : test::without_agent({})};
  const auto end = [&]() -> task<> {
    if (closes) co_await p.from.close();
    p.from = {};
  };
  p.rt.run(when_all(p.to.ended(), end()));
  CHECK_FALSE(p.to.is_open());
  CHECK(p.to.was_closed_by_peer() == closes);
}

TEST_CASE("a wait for the end that begins when the connection has gone ends at once",
          "[connection][device]") {
  test::connected_pair both;
  task<> waits = both.client.ended();
  connection moved = std::move(both.client);
  moved = {};
  both.rt.run(both.rt.executor().sleep_for(0ms));
  CHECK_NOTHROW(both.rt.run(std::move(waits)));
}

TEST_CASE("an initiator is told at once when its target is dropped", "[connection][device]") {
  CORDMA_NEED_XRC();
  xrc_pair p;
  const auto drop = [&]() -> task<> {
    p.to = {};
    co_return;
  };
  p.rt.run(when_all(p.from.ended(), drop()));
  CHECK(why_failed(p.rt, p.send(p.host.pool, 1)).code == make_error_code(errc::disconnected));
}

TEST_CASE("over XRC the heartbeat finds a peer that has gone, where no socket tells",
          "[connection][device]") {
  CORDMA_NEED_XRC();
  const bool target_goes = GENERATE(false, true);
  connection_options options;
  options.heartbeat.interval = 20ms;
  options.timeout = 10;
  options.connect_timeout = 20ms;
  runtime rt{test::on_test_device()};
  xrc_host host{rt};
  connection_options of_initiator = options;
  of_initiator.transport = verbs::queue_pair_type::xrc_initiator;
  prepared_connection one = rt.prepare_connection(of_initiator);
  prepared_connection two = rt.prepare_connection(host.as_target(options));
  auto [from, to] = rt.run(when_all(one.connect(two.info()), two.connect(one.info())));
  (target_goes ? to : from) = {};
  connection& stays = target_goes ? from : to;
  rt.run(stays.ended());
  CHECK_FALSE(stays.is_open());
  CHECK_FALSE(stays.was_closed_by_peer());
}

TEST_CASE("over XRC unsignaled requests end with the signaled one behind them, or when it breaks",
          "[connection][device]") {
  CORDMA_NEED_XRC();
  xrc_pair p;
  local_mr out = p.rt.memory().allocate_zeroed(4);
  auto silent = p.from.to(p.host.pool.num()).post(cordma::send(out.slice(), {.signaled = false}));
  p.rt.run(p.send(p.host.other, 1));
  CHECK(p.from.qp().sends().in_flight() == 0);
  auto lost = p.from.to(p.host.pool.num()).post(cordma::send(out.slice(), {.signaled = false}));
  queue_pair& qp = p.from.qp();
  qp.abort({.code = errc::closed, .call = "test"});
  p.rt.run(test::until(p.rt.executor(), [&] { return qp.slots_in_use() == 0; }));
  CHECK(qp.drained_event().is_set());
}

TEST_CASE("the number of queue pairs is one on each side without agents", "[connection][device]") {
  CORDMA_NEED_XRC();
  xrc_pair p{test::without_agent({})};
  CHECK(p.from.local_hello().agent.qpn == 0);
  CHECK(p.to.local_hello().agent.qpn == 0);
  check_that_messages_arrive(p.rt, p.from, p.to, p.host);
}

TEST_CASE("over XRC a message in a warm program allocates nothing", "[connection][device]") {
  CORDMA_NEED_XRC();
  if (!support::counts_allocations()) CORDMA_SKIP("its malloc is not counted");
  xrc_pair p;
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(64);
  const auto exchange = [&](unsigned rounds) -> task<> {
    auto requests = p.from.to(p.host.pool.num());
    for (unsigned n = 0; n < rounds; ++n) {
      co_await requests.send(memory.slice(16, 16));
      static_cast<void>(co_await p.host.pool.next_message());
      co_await requests.write(memory.slice(16, 16), memory.remote_slice().slice(32, 16));
      co_await requests.fetch_add(memory.remote_slice().slice(32, 8), 1);
    }
  };
  p.rt.run(exchange(8));
  const auto before = support::thread_allocation_count();
  p.rt.run(exchange(100));
  CHECK(support::thread_allocation_count() == before);
}

TEST_CASE("a target needs a domain of its own runtime, and XRC no pool of its own",
          "[connection][device]") {
  CORDMA_NEED_XRC();
  runtime rt{test::on_test_device()};
  runtime elsewhere{test::on_test_device()};
  xrc_host host{rt};
  connection_options bare = test::target(host.domain);
  bare.xrc_domain = nullptr;
  CHECK_THROWS_WITH(rt.listen({}, {}, bare), Catch::Contains("open_xrc_domain"));
  connection_options pooled = test::initiator();
  pooled.receives_from = &host.pool;
  CHECK_THROWS_WITH(rt.listen({}, {}, pooled), Catch::Contains("shared_receives::num"));
  connection_options plain = test::initiator();
  plain.plain = true;
  CHECK_THROWS_WITH(rt.listen({}, {}, plain), Catch::Contains("connect_plain"));
  prepared_connection foreign = elsewhere.prepare_connection(test::target(host.domain));
  CHECK_THROWS_WITH(foreign.info(), Catch::Contains("of another runtime"));
  CHECK_THROWS_WITH(elsewhere.share_receives(test::inbox(host.domain)),
                    Catch::Contains("shared_receives") && Catch::Contains("of another runtime"));
  connection_options over_rc;
  over_rc.receives_from = &host.pool;
  listener acceptor = rt.listen();
  CHECK_THAT(why_failed(rt, rt.connect(acceptor.local_endpoint(), over_rc)).to_string(),
             Catch::Contains("receives_from wants one without a domain"));
  CHECK_THROWS_WITH(rt.share_receives({.xrc_domain = &host.domain}),
                    Catch::Contains("for_messages"));
}

TEST_CASE("a device without XRC refuses it by name, before anything is made",
          "[connection][device]") {
  if (test::has_xrc()) CORDMA_SKIP("the device has XRC");
  runtime rt{test::on_test_device()};
  CHECK_THROWS_WITH(rt.open_xrc_domain(), Catch::Contains("IBV_DEVICE_XRC"));
  CHECK_THROWS_WITH(rt.open_xrc_domain("/tmp/no-such-folder/xrc"),
                    Catch::Contains("IBV_DEVICE_XRC"));
  CHECK_THROWS_WITH(rt.listen({}, {}, test::initiator()), Catch::Contains("IBV_DEVICE_XRC"));
  const failure why = why_failed(rt, rt.connect("127.0.0.1:1", test::initiator()));
  CHECK(why.code == make_error_code(errc::not_supported));
}
