#include "../../lib/agent/control_bytes.hpp"

#include "support/loopback.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <optional>
#include <vector>

using namespace cordma;
using test::loopback;

namespace {

/// One end of a control queue pair that carries bytes.
struct byte_end : control_channel::listener {
  explicit byte_end(loopback& link)
      : channel{link.driver, link.pd, link.allocator(test::all_access), *this} {}

  void on_frame(const control_channel::frame& f, unsigned slot) noexcept override {
    try {
      bytes->on_frame(f, slot);
    } catch (const error& e) {
      bad = e.failure();
    }
  }
  void on_bad_frame(const failure& why) noexcept override { bad = why; }
  void on_channel_failure() noexcept override { bytes->on_failure(); }

  control_channel channel;
  std::optional<control_bytes> bytes;
  std::optional<failure> bad;
};

struct byte_ends {
  byte_ends() : one{link}, other{link} {
    link.connect(one.channel.qp(), other.channel.qp());
    for (byte_end* e : {&one, &other}) {
      e->channel.post_receives();
      e->bytes.emplace(e->channel);
      e->channel.start();
    }
  }
  loopback link;
  byte_end one;
  byte_end other;
};

std::vector<std::byte> counted(std::size_t size) {
  std::vector<std::byte> all(size);
  for (std::size_t n = 0; n < size; ++n) all[n] = std::byte(n * 13 + n / 256);
  return all;
}

}  // namespace

TEST_CASE("bytes of any number go over the control queue pair, both ways at once",
          "[agent][device]") {
  byte_ends e;
  for (const std::size_t size : {1u, 31u, 32u, 33u, 20'000u}) {
    const auto sent = counted(size);
    std::vector<std::byte> there(size);
    std::vector<std::byte> back(size);
    e.link.run(when_all(write_all(*e.one.bytes, sent), read_exactly(*e.other.bytes, there),
                        write_all(*e.other.bytes, sent), read_exactly(*e.one.bytes, back)));
    CHECK(there == sent);
    CHECK(back == sent);
  }
  CHECK_FALSE(e.one.bad);
  CHECK_FALSE(e.other.bad);
}

TEST_CASE("bytes that nobody reads stop their sender, and lose nothing", "[agent][device]") {
  byte_ends e;
  const auto sent = counted(20'000);
  std::size_t taken = 0;
  while (const std::size_t n = e.one.bytes->try_write(std::span{sent}.subspan(taken))) taken += n;
  CHECK(taken < 100 * sizeof(agent_protocol::payload));
  std::vector<std::byte> there(sent.size());
  e.link.run(when_all(write_all(*e.one.bytes, std::span{sent}.subspan(taken)),
                      read_exactly(*e.other.bytes, there)));
  CHECK(there == sent);
}

TEST_CASE("the end of the bytes is read after the last of them, and nothing may follow",
          "[agent][device]") {
  byte_ends e;
  const auto sent = counted(1000);
  std::vector<std::byte> there(sent.size());
  e.link.run(when_all(write_all(*e.one.bytes, sent), read_exactly(*e.other.bytes, there)));
  e.one.bytes->end_writing();
  CHECK(e.link.run(read_some(*e.other.bytes, there)) == 0);
  CHECK_FALSE(e.other.bad);
  e.link.run(write_all(*e.one.bytes, counted(1)));
  e.link.run(test::until(e.link.executor, [&] { return e.other.bad.has_value(); }));
  CHECK_THAT(e.other.bad->to_string(), Catch::Contains("bytes after their end"));
}

TEST_CASE("a bad frame fails one read, behind the bytes that came before it", "[agent][device]") {
  byte_ends e;
  const auto sent = counted(30);  // One frame.
  std::vector<std::byte> there(10);
  e.link.run(when_all(write_all(*e.one.bytes, sent), read_exactly(*e.other.bytes, there)));
  e.other.bytes->on_bad_frame({.code = errc::bad_frame, .call = "agent"});
  there.resize(sent.size());
  e.link.run(read_exactly(*e.other.bytes, std::span{there}.subspan(10)));
  CHECK(there == sent);
  std::array<std::byte, 1> byte{};
  const auto failed = e.link.run(as_result(read_some(*e.other.bytes, byte)));
  REQUIRE(failed.has_failure());
  CHECK(failed.failure().code == make_error_code(errc::bad_frame));
  CHECK_FALSE(e.other.bytes->try_read(byte));
  CHECK(e.other.bytes->try_write(byte) == 1);
  e.other.channel.stop();
  CHECK_THROWS_AS(e.other.bytes->try_write(byte), error);
}

TEST_CASE("a control queue pair that fails ends the read that waits", "[agent][device]") {
  byte_ends e;
  std::array<std::byte, 1> byte{};
  const auto fail = [&]() -> task<> {
    e.one.channel.qp().abort({.code = errc::disconnected, .call = "test"});
    co_return;
  };
  const auto [read, failed] =
      e.link.run(when_all(as_result(read_some(*e.one.bytes, byte)), fail()));
  REQUIRE(read.has_failure());
  CHECK(read.failure().code == make_error_code(errc::disconnected));
  CHECK_THROWS_AS(e.one.bytes->try_write(byte), error);
}

TEST_CASE("the channel's listener is told outside of a reap, and of a call of the channel",
          "[agent][device]") {
  byte_ends e;
  struct reaper : byte_channel::listener {
    explicit reaper(byte_ends& of) : ends{of} {}
    void on_channel_change() noexcept override {
      ends.link.driver.reap();  // In the middle of another reap this breaks a contract.
      was_in_call |= is_in_call;
      ++times;
    }
    byte_ends& ends;
    bool is_in_call = false;
    bool was_in_call = false;
    int times = 0;
  } listener{e};
  e.other.bytes->listen(&listener);
  const auto told_again = [&](int before) {
    e.link.run(test::until(e.link.executor, [&] { return listener.times > before; }));
  };
  e.link.run(write_all(*e.one.bytes, counted(1)));
  told_again(0);
  // A queue pair that fails tells, too, even when one of the channel's calls finds out.
  const int before = listener.times;
  listener.is_in_call = true;
  e.other.channel.qp().abort({.code = errc::disconnected, .call = "test"});
  listener.is_in_call = false;
  CHECK(listener.times == before);
  told_again(before);
  CHECK_FALSE(listener.was_in_call);
  e.other.bytes->listen(nullptr);
}
