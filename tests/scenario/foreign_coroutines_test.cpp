// Programs whose coroutines are another library's: every operation of a connection in each.
#include "support/connected_pair.hpp"
#include "support/foreign_promises.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/datagram/datagram_socket.hpp>
#include <cordma/io/wait_until.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/queue/shared_receives.hpp>
#include <cordma/rpc/client.hpp>
#include <cordma/rpc/server.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>

using namespace cordma;
using support::end;
using support::foreign;
using test::connected_pair;

namespace {

using twice = rpc::method<"twice", std::uint64_t, std::uint64_t>;

template <class Gives>
void run_to_end(runtime& rt, const foreign<Gives>& coroutine) {
  rt.run(wait_until(rt.executor(), [&] { return coroutine.done(); }));
  coroutine.rethrow();
}

/// A connection whose server takes its messages from a stock.
struct shared_link {
  runtime rt{test::on_test_device()};
  shared_receives& stock =
      rt.share_receives({.buffers = 4, .buffer_bytes = 64, .for_messages = true});
  listener acceptor{rt.listen({}, {}, with_stock())};
  std::tuple<connection, connection> ends =
      rt.run(when_all(rt.connect(acceptor.local_endpoint()), acceptor.accept()));
  connection& client = std::get<0>(ends);
  connection& server = std::get<1>(ends);
  local_mr out = rt.memory().allocate_zeroed(8);

 private:
  connection_options with_stock() {
    connection_options options;
    options.receives_from = &stock;
    return options;
  }
};

}  // namespace

TEMPLATE_TEST_CASE("a connection serves coroutines of other libraries", "[runtime][device]",
                   support::gives_nothing, support::gives_std_token, support::gives_environment) {
  connection_options lends;
  lends.agent.lending.bytes_max = 1 << 20;
  connected_pair link{{}, {}, lends};
  const auto body = [&](std::stop_token) -> foreign<TestType> {
    connection& here = link.client;
    connection& there = link.server;
    local_mr mine = link.rt.memory().allocate_zeroed(64);
    const remote_mr lent = co_await here.request_remote_mr(64);
    mine.slice().as<std::uint64_t>()[0] = 17;
    co_await here.write(mine.slice(0, 8), lent.slice(0, 8));
    co_await here.read(mine.slice(8, 8), lent.slice(0, 8));
    CHECK(mine.slice().as<std::uint64_t>()[1] == 17);
    const auto swapped = co_await here.compare_swap(lent.slice(0, 8), 17, 18);
    CHECK(swapped == 17);
    const auto added_to = co_await here.fetch_add(lent.slice(0, 8), 1);
    CHECK(added_to == 18);
    there.post_recv(mine.slice(32, 8));
    co_await here.send(mine.slice(0, 8));
    const message came = co_await there.next_message();
    CHECK(came.size_bytes == 8);
  };
  std::stop_source source;
  const auto running = body(source.get_token());
  run_to_end(link.rt, running);
  CHECK(running.ended() == end::returned);
}

TEMPLATE_TEST_CASE("streams, calls and connects serve coroutines of other libraries",
                   "[runtime][device]", support::gives_nothing, support::gives_std_token,
                   support::gives_environment) {
  connected_pair link;
  rpc::server server;
  server.handle<twice>([](std::uint64_t n) -> task<std::uint64_t> { co_return 2 * n; });
  const auto body = [&](std::stop_token) -> foreign<TestType> {
    auto connected =
        co_await when_all(link.rt.connect(link.acceptor.local_endpoint()), link.acceptor.accept());
    {
      message_stream from{std::move(std::get<0>(connected))};
      message_stream to{std::move(std::get<1>(connected))};
      const std::string text = "text";
      co_await from.send(std::as_bytes(std::span{text}));
      const stream_message came = co_await to.receive();
      CHECK(came.size_bytes() == 4);
    }
    scope serving{link.rt.executor()};
    serving.spawn(server.serve(std::move(link.server)));
    rpc::client client{std::move(link.client)};
    const std::uint64_t doubled = co_await client.call<twice>(21);
    CHECK(doubled == 42);
    co_await client.close();
    co_await serving.join();
  };
  std::stop_source source;
  const auto running = body(source.get_token());
  run_to_end(link.rt, running);
  CHECK(running.ended() == end::returned);
}

TEMPLATE_TEST_CASE("datagrams and groups serve coroutines of other libraries", "[runtime][device]",
                   support::gives_nothing, support::gives_std_token, support::gives_environment) {
  constexpr std::uint32_t qkey = 0x1234;
  runtime rt{test::on_test_device()};
  datagram_socket a = rt.open_datagram({.qkey = qkey});
  datagram_socket b = rt.open_datagram({.qkey = qkey});
  const bool is_ip4 = a.address().path.gid.raw[11] == 0xff;
  const auto body = [&](std::stop_token) -> foreign<TestType> {
    local_mr out = rt.memory().allocate_zeroed(8);
    local_mr in = rt.memory().allocate_zeroed(b.payload_max());
    b.post_recv(in.slice());
    const std::size_t sent = co_await a.send_to(b.address(), out);
    CHECK(sent == 8);
    const datagram came = co_await b.next_datagram();
    CHECK(came.sender.qpn == a.address().qpn);
    co_await b.find_route(came.sender);
    const multicast_membership member = co_await b.join(is_ip4 ? "239.9.8.7" : "ff15::987");
    b.post_recv(in.slice());
    co_await a.send_to_with_imm(member.address(), out, 7);
    const datagram to_all = co_await b.next_datagram();
    CHECK(to_all.immediate == 7u);
    CHECK(to_all.was_multicast);
  };
  std::stop_source source;
  const auto running = body(source.get_token());
  run_to_end(rt, running);
  CHECK(running.ended() == end::returned);
}

TEMPLATE_TEST_CASE("messages of shared receives come to coroutines of other libraries",
                   "[runtime][device]", support::gives_nothing, support::gives_std_token,
                   support::gives_environment) {
  shared_link link;
  const auto body = [&](std::stop_token) -> foreign<TestType> {
    for (int n = 0; n < 8; ++n) {
      co_await link.client.send(link.out);
      const shared_receives::message came = co_await link.stock.next_message();
      CHECK(came.qpn() == link.server.verbs().num());
    }
  };
  std::stop_source source;
  const auto running = body(source.get_token());
  run_to_end(link.rt, running);
  CHECK(running.ended() == end::returned);
}

TEMPLATE_TEST_CASE("a stop of another library loses no datagram and no shared message",
                   "[runtime][device]", support::gives_std_token, support::gives_environment) {
  shared_link link;
  datagram_socket socket = link.rt.open_datagram();
  local_mr in = link.rt.memory().allocate_zeroed(socket.payload_max());
  socket.post_recv(in.slice());
  const auto first = [&](std::stop_token) -> foreign<TestType> {
    static_cast<void>(co_await link.stock.next_message());
  };
  const auto second = [&](std::stop_token) -> foreign<TestType> {
    static_cast<void>(co_await socket.next_datagram());
  };
  std::stop_source source;
  const auto of_stock = first(source.get_token()), of_socket = second(source.get_token());
  source.request_stop();
  link.rt.run(wait_until(link.rt.executor(), [&] { return of_stock.done() && of_socket.done(); }));
  CHECK(of_stock.ended() == TestType::on_stop);
  CHECK(of_socket.ended() == TestType::on_stop);
  link.rt.run(link.client.send(link.out));
  CHECK(link.rt.run(link.stock.next_message()).size_bytes() == 8);
  link.rt.run(socket.send_to(socket.address(), link.out));
  CHECK(link.rt.run(socket.next_datagram()).size_bytes == 8);
}

TEMPLATE_TEST_CASE("a stop of another library loses no message", "[runtime][device]",
                   support::gives_std_token, support::gives_environment) {
  connected_pair link;
  local_mr memory = link.rt.memory().allocate_zeroed(64);
  link.server.post_recv(memory.slice(0, 8));
  const auto body = [&](std::stop_token) -> foreign<TestType> {
    static_cast<void>(co_await link.server.next_message());
  };
  std::stop_source source;
  const auto stopped = body(source.get_token());
  source.request_stop();
  link.rt.run(wait_until(link.rt.executor(), [&] { return stopped.done(); }));
  CHECK(stopped.ended() == TestType::on_stop);
  link.rt.run(link.client.send(memory.slice(32, 8)));
  CHECK(link.rt.run(link.server.next_message()).size_bytes == 8);
}

TEMPLATE_TEST_CASE("another thread stops an accept, which takes nobody from the next one",
                   "[runtime][device]", support::gives_std_token, support::gives_environment) {
  connected_pair link;
  const auto body = [&](std::stop_token) -> foreign<TestType> {
    static_cast<void>(co_await link.acceptor.accept());
  };
  std::stop_source source;
  std::optional<foreign<TestType>> stopped;
  std::jthread other;
  link.rt.executor().post([&] {
    stopped.emplace(body(source.get_token()));
    other = std::jthread{[&] { source.request_stop(); }};
  });
  link.rt.run(wait_until(link.rt.executor(), [&] { return stopped && stopped->done(); }));
  CHECK(stopped->ended() == TestType::on_stop);
  const auto connected = link.rt.run(
      when_all(link.rt.connect(link.acceptor.local_endpoint()), link.acceptor.accept()));
  CHECK(std::get<1>(connected).is_open());
}
