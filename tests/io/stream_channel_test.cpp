#include "io/stream_channel.hpp"

#include "support/channel_pair.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <array>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::channel_pair;
using test::code_of;
using test::fill;
using test::numbered;

TEST_CASE("a channel whose peer has gone fails a write with the errno", "[io]") {
  channel_pair p;
  p.right.reset();
  const auto outcome = p.executor.run(as_result(write_all(*p.left, numbered(1))));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code.value() == EPIPE);
}

TEST_CASE("a channel tells its listener of bytes and of the end", "[io]") {
  struct counting final : byte_channel::listener {
    void on_channel_change() noexcept override {
      while (const auto n = channel.try_read(bytes)) {
        total += *n;
        if (*n == 0) return ended.set();
      }
    }
    explicit counting(byte_channel& of) : channel{of} {}
    byte_channel& channel;
    std::array<std::byte, 16> bytes{};
    std::size_t total = 0;
    event ended;
  };
  channel_pair p;
  counting heard{*p.right};
  p.right->listen(&heard);
  p.executor.run(write_all(*p.left, numbered(100)));
  p.left->end_writing();
  p.executor.run(heard.ended.wait());
  CHECK(heard.total == 100);
}

TEST_CASE("a reset by the peer is an error to who reads and who writes", "[io]") {
  channel_pair p{channel_pair::kind::tcp};
  const linger now{.l_onoff = 1, .l_linger = 0};
  REQUIRE(::setsockopt(p.left->socket().fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
  std::array<std::byte, 8> bytes{};
  const auto drop = [](std::optional<stream_channel>& end) -> task<> {
    end.reset();
    co_return;
  };
  const auto [read, dropped] =
      p.executor.run(when_all(as_result(read_some(*p.right, bytes)), as_result(drop(p.left))));
  REQUIRE(read.has_failure());
  CHECK(read.failure().code == std::errc::connection_reset);
  CHECK(code_of(p.executor, write_all(*p.right, bytes)) == std::errc::broken_pipe);
}

TEST_CASE("a write that waits on a half-closed peer sleeps instead of spinning", "[io][E8]") {
  channel_pair p{channel_pair::kind::tcp};
  p.left->end_writing();
  const std::uint64_t iterations = p.executor.counters().iterations;
  CHECK(code_of(p.executor, with_timeout(fill(*p.right), 50ms)) == errc::timed_out);
  CHECK(p.executor.counters().iterations - iterations < 100);

  // The channel goes on when there is room.
  const std::vector<std::byte> sent = numbered(8'000'000);
  std::vector<std::byte> into(1 << 16);
  const auto drain = [](byte_channel& s, std::span<std::byte> b, std::size_t total) -> task<> {
    for (std::size_t n = 0; n < total;) n += co_await read_some(s, b);
  };
  p.executor.run(when_all(write_all(*p.right, sent), drain(*p.left, into, sent.size())));
}
