#include "io/stream_channel.hpp"

#include "support/channel_pair.hpp"

using namespace cordma;
using test::channel_pair;
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
