#include "io/byte_channel.hpp"

#include "support/channel_pair.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <random>

using namespace cordma;
using namespace std::chrono_literals;
using test::channel_pair;
using test::numbered;

TEST_CASE("bytes of any number go through a channel, more than the socket holds", "[io]") {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{4'000'000}}) {
    channel_pair p;
    const std::vector<std::byte> sent = numbered(size);
    std::vector<std::byte> got(size);
    p.executor.run(when_all(write_all(*p.left, sent), read_exactly(*p.right, got)));
    CHECK(got == sent);
  }
}

TEST_CASE("both directions of a channel work at once", "[io]") {
  channel_pair p;
  const std::vector<std::byte> sent = numbered(1'000'000);
  std::vector<std::byte> to_left(sent.size());
  std::vector<std::byte> to_right(sent.size());
  p.executor.run(when_all(write_all(*p.left, sent), write_all(*p.right, sent),
                          read_exactly(*p.left, to_left), read_exactly(*p.right, to_right)));
  CHECK(to_left == sent);
  CHECK(to_right == sent);
}

TEST_CASE("the end of a channel is a read of no bytes, and an error where bytes are due", "[io]") {
  channel_pair p;
  std::array<std::byte, 4> bytes{};
  p.executor.run(write_all(*p.left, std::span{bytes}.first(1)));
  p.left->end_writing();
  const result<void> cut = p.executor.run(as_result(read_exactly(*p.right, bytes)));
  REQUIRE(cut.has_failure());
  CHECK(cut.failure().code == errc::disconnected);
  CHECK(cut.failure().detail.view() == "after 1 of 4 bytes");
  CHECK(p.executor.run(read_some(*p.right, bytes)) == 0);
}

TEST_CASE("a read that is stopped loses no byte", "[io]") {
  channel_pair p;
  const std::vector<std::byte> sent = numbered(20'000);
  const auto write = [](byte_channel& s, std::span<const std::byte> b) -> task<> {
    for (std::size_t at = 0; at < b.size(); at += 10) {
      co_await write_all(s, b.subspan(at, 10));
      if (at % 100 == 0) co_await s.executor().sleep_for(10us);
    }
  };
  std::vector<std::byte> received;
  const auto read = [&received](byte_channel& s, std::size_t total) -> task<> {
    std::mt19937 random{7};
    std::array<std::byte, 16> into;
    while (received.size() < total) {
      const auto outcome = co_await as_result(
          with_timeout(read_some(s, into), std::chrono::microseconds{random() % 20}));
      if (outcome.has_value())
        received.insert(received.end(), into.begin(), into.begin() + long(*outcome));
    }
  };
  p.executor.run(when_all(write(*p.left, sent), read(*p.right, sent.size())));
  CHECK(received == sent);
}
