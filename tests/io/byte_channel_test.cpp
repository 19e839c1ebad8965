#include "io/byte_channel.hpp"

#include "io/stream_channel.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/io/executor.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <array>
#include <optional>
#include <vector>

using namespace cordma;

namespace {

/// The two ends of a Unix socket pair.
struct channel_pair {
  channel_pair() {
    std::array<int, 2> fds{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
    left.emplace(stream_socket{executor, unique_fd{fds[0]}});
    right.emplace(stream_socket{executor, unique_fd{fds[1]}});
  }
  cordma::executor executor;
  std::optional<stream_channel> left;
  std::optional<stream_channel> right;
};

std::vector<std::byte> numbered(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = std::byte(i * 7 + i / 256);
  return bytes;
}

}  // namespace

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

TEST_CASE("a channel whose peer has gone fails a write with the errno", "[io]") {
  channel_pair p;
  p.right.reset();
  const auto outcome = p.executor.run(as_result(write_all(*p.left, numbered(1))));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code.value() == EPIPE);
}

TEST_CASE("a read that is stopped loses no byte", "[io]") {
  channel_pair p;
  std::array<std::byte, 1> byte{};
  const auto late = p.executor.run(
      as_result(with_timeout(read_some(*p.right, byte), std::chrono::nanoseconds{1})));
  CHECK(late.has_failure());
  p.executor.run(write_all(*p.left, numbered(1)));
  CHECK(p.executor.run(read_some(*p.right, byte)) == 1);
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
