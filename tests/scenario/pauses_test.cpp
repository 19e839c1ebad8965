#include "support/runtime_group.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/messages/message_stream.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <latch>

using namespace cordma;
using test::group_of;

// A program that is busy elsewhere between two calls of `run`. Its peer is a thread that always
// runs.

TEST_CASE("messages that come while a program does something else are there when it asks",
          "[runtime][device]") {
  constexpr std::size_t count = 3;
  std::latch posted{1};
  std::latch sent{1};
  runtime_group group{group_of(1)};
  const auto peer = [&](runtime& rt, unsigned, connection conn) -> task<> {
    posted.wait();  // The other thread waits for this one only afterwards.
    local_mr memory = rt.memory().allocate_zeroed(8);
    for (std::size_t i = 0; i < count; ++i) {
      memory.bytes()[0] = std::byte(i);
      static_cast<void>(co_await conn.send(memory.slice()));
    }
    sent.count_down();
    static_cast<void>(co_await as_result(conn.next_message()));
  };
  const group_listener& acceptor = group.serve({}, peer);
  runtime rt{test::on_test_device()};
  connection conn = rt.run(rt.connect(acceptor.local_endpoint()));
  local_mr memory = rt.memory().allocate_zeroed(8 * count);
  for (std::size_t i = 0; i < count; ++i) conn.post_recv(memory.slice(8 * i, 8));
  posted.count_down();
  sent.wait();  // The device has acknowledged them all.
  for (std::size_t i = 0; i < count; ++i) {
    const message m = rt.run(conn.next_message());
    CHECK(m.payload().bytes()[0] == std::byte(i));
  }
}

TEST_CASE("what was posted goes on, and a peer is served, while a program does something else",
          "[runtime][device]") {
  std::latch asked{1};
  std::latch read{1};
  std::uint64_t seen = 0;
  connection_options lends;
  lends.agent.lending.bytes_max = 1 << 20;
  runtime_group group{group_of(1)};
  const auto peer = [&](runtime& rt, unsigned, connection conn) -> task<> {
    const remote_mr there = co_await conn.receive_remote_mr();
    asked.wait();
    local_mr memory = rt.memory().allocate_zeroed(8);
    static_cast<void>(co_await conn.read(memory, there.slice()));
    seen = memory.slice().as<std::uint64_t>()[0];
    read.count_down();
    static_cast<void>(co_await as_result(conn.next_message()));
  };
  serve_options options;
  options.connections = lends;
  const group_listener& acceptor = group.serve({}, peer, options);
  runtime rt{test::on_test_device()};
  connection conn = rt.run(rt.connect(acceptor.local_endpoint(), lends));
  local_mr lent = conn.memory().allocate_zeroed(8);
  lent.slice().as<std::uint64_t>()[0] = 42;
  const remote_mr borrowed = rt.run(conn.request_remote_mr(8));
  const loan given = rt.run(conn.send_local_mr(std::move(lent)));
  local_mr word = rt.memory().allocate_zeroed(8);
  word.slice().as<std::uint64_t>()[0] = 7;
  auto written = conn.post(cordma::write(word.slice(), borrowed.slice()));
  asked.count_down();
  read.wait();  // The peer has read, and its device has served the WRITE before or meanwhile.
  CHECK(seen == 42);
  CHECK(rt.run(std::move(written)) == 8);
}

TEST_CASE("a stream's sender waits for a program that does something else, and loses nothing",
          "[runtime][device]") {
  constexpr std::uint32_t count = 100;  // More than there are buffers.
  std::latch begun{1};
  runtime_group group{group_of(1)};
  const auto peer = [&](runtime&, unsigned, connection conn) -> task<> {
    message_stream stream{std::move(conn)};
    for (std::uint32_t i = 0; i < count; ++i) {
      if (i == 1) begun.count_down();
      co_await stream.send(std::as_bytes(std::span{&i, 1}), i);
    }
    static_cast<void>(co_await as_result(stream.receive()));
  };
  const group_listener& acceptor = group.serve({}, peer);
  runtime rt{test::on_test_device()};
  message_stream stream{rt.run(rt.connect(acceptor.local_endpoint())), {.depth = 8}};
  begun.wait();
  for (std::uint32_t i = 0; i < count; ++i) CHECK(rt.run(stream.receive()).immediate() == i);
}
