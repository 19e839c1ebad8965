#include "raw_side.hpp"
#include "sim/world_state.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <functional>
#include <string>

using namespace cordma;
using namespace std::chrono_literals;
using Catch::Contains;
using sim::detail::host_state;
using sim::detail::memory_oracle;
using sim::detail::world_state;
using test::raw_side;
using test::raw_world;

namespace {

/// Two hosts of a world, whose oracle is told of things that happen on them while a third one
/// runs.
struct judged {
  world_state world{1, sim::faults::none()};
  host_state& a = world.add_host("a");
  host_state& b = world.add_host("b");
  host_state& third = world.add_host("c");
  memory_oracle& memory = world.memory();

  /// Returns the text of the finding; empty: none.
  std::string after(const std::function<void()>& happens) {
    if (!third.is_running()) third.start([](runtime&) -> task<> { co_await sleep_for(1ms); }, {});
    world.call_at(world.now(), happens);
    try {
      world.run(1s);
    } catch (const sim::finding& found) {
      return found.what();
    }
    return {};
  }
  /// Returns the finding when a host's device writes.
  std::string written(const host_state& host, std::uint64_t address, std::uint64_t bytes,
                      std::uint32_t rkey = 0) {
    return after([&, address, bytes, rkey] { memory.written(host, address, bytes, rkey); });
  }
};

ibv_sge bytes_at(std::uint64_t address, std::uint32_t length) {
  return {.addr = address, .length = length, .lkey = 0};
}

}  // namespace

TEST_CASE("a peer may write by a key that the program gave away itself", "[sim]") {
  raw_world both;
  const std::string found = both.play(
      [&](raw_side& own, raw_side& other) -> task<> {
        own.send(test::request(IBV_WR_RDMA_WRITE, &other), {own.piece(0, 8)});
        static_cast<void>(co_await own.completion());
      },
      [](raw_side&, raw_side&) -> task<> { co_await sleep_for(1s); });
  CHECK(found.empty());
}

TEST_CASE("a device that writes into memory of no request is found", "[sim]") {
  static ibv_context_ops real;
  raw_world both;
  const std::string found = both.play(
      [](raw_side& own, raw_side&) -> task<> {
        co_await sleep_for(1ms);
        own.send(test::request(IBV_WR_SEND), {own.piece(0, 8)});
        static_cast<void>(co_await own.completion());
      },
      [](raw_side& own, raw_side&) -> task<> {
        ibv_sge piece = own.piece(0, 8);
        ibv_recv_wr unknown{.wr_id = 1, .next = nullptr, .sg_list = &piece, .num_sge = 1};
        ibv_recv_wr* bad = nullptr;
        if (real.post_recv(own.qp, &unknown, &bad) != 0) throw std::runtime_error{"post_recv"};
        co_await sleep_for(1s);
      },
      nullptr, [](ibv_context& context) { real = context.ops; });
  CHECK_THAT(found, Catch::StartsWith(
                        "the device of host b wrote 8 bytes where no request of its own is"));
}

TEST_CASE("a device may write into all of a request's memory, until it is taken back", "[sim]") {
  judged j;
  const std::array pieces{bytes_at(1000, 100), bytes_at(5000, 10), bytes_at(900, 2000)};
  j.memory.lend(j.a, pieces);
  for (const auto& [address, bytes] :
       {std::pair{1000u, 100u}, {1099u, 1u}, {5000u, 10u}, {900u, 2000u}, {2899u, 1u}})
    CHECK(j.written(j.a, address, bytes) == "");
  for (const auto& [address, bytes] :
       {std::pair{899u, 1u}, {900u, 2001u}, {4999u, 11u}, {5009u, 2u}, {2900u, 1u}})
    CHECK_THAT(j.written(j.a, address, bytes), Contains("device of host a wrote "));
  CHECK_THAT(j.written(j.b, 1000, 100), Contains("device of host b wrote 100 bytes"));
  j.memory.take_back(j.a, std::span{pieces}.last(1));
  CHECK_THAT(j.written(j.a, 900, 1), Contains("device of host a wrote 1 bytes"));
  CHECK(j.written(j.a, 1000, 100) == "");
}

TEST_CASE("memory that two requests have is lent until both have ended", "[sim]") {
  judged j;
  const std::array piece{bytes_at(1000, 100)};
  j.memory.lend(j.a, piece);
  j.memory.lend(j.a, piece);
  j.memory.take_back(j.a, piece);
  CHECK(j.written(j.a, 1000, 100) == "");
  j.memory.take_back(j.a, piece);
  CHECK_THAT(j.written(j.a, 1000, 100), Contains("device of host a wrote 100 bytes"));
}

TEST_CASE("a peer may write what was lent by that key, until it is taken back", "[sim]") {
  judged j;
  j.memory.lent(j.a, 1000, 100, 7, true);
  j.memory.lent(j.a, 2000, 100, 7, false);
  CHECK(j.written(j.a, 1000, 100, 7) == "");
  CHECK(j.written(j.a, 1099, 1, 7) == "");
  for (const auto& [address, bytes, rkey] :
       {std::tuple{999u, 1u, 7u}, {1000u, 101u, 7u}, {2000u, 1u, 7u}})
    CHECK_THAT(j.written(j.a, address, bytes, rkey), Contains("into memory of host a that it was"));
  CHECK(j.written(j.a, 1000, 1, 8) == "");
  CHECK(j.written(j.b, 1000, 1, 7) == "");
  CHECK(j.after([&] { j.memory.taken_back(j.a, 1000, 7, false); }) == "");
  CHECK_THAT(j.written(j.a, 1000, 100, 7), Contains("into memory of host a that it was not lent"));
}

TEST_CASE("memory that ends at its owner before its holder is done is found", "[sim]") {
  judged j;
  j.memory.lent(j.a, 1000, 100, 7, true);
  j.memory.borrowed(1000, 7, time_point::max());
  CHECK_THAT(j.after([&] { j.memory.taken_back(j.a, 1000, 7, true); }),
             Catch::StartsWith("host a took memory back that its holder still uses"));
}

TEST_CASE("an owner may take memory back whenever its holder does not return it", "[sim]") {
  judged j;
  j.memory.lent(j.a, 1000, 100, 7, true);
  j.memory.borrowed(1000, 7, time_point::max());
  CHECK(j.after([&] { j.memory.taken_back(j.a, 1000, 7, false); }) == "");
}

TEST_CASE("a holder that has given memory back uses it no more", "[sim]") {
  judged j;
  j.memory.lent(j.a, 1000, 100, 7, true);
  j.memory.borrowed(1000, 7, time_point::max());
  j.memory.given_back(1000, 7);
  CHECK(j.after([&] { j.memory.taken_back(j.a, 1000, 7, true); }) == "");
}

TEST_CASE("a lease that ends at its owner before its holder's end is found", "[sim]") {
  judged j;
  j.memory.lent(j.a, 1000, 100, 7, true);
  j.memory.borrowed(1000, 7, j.world.now() + 1us);
  CHECK(j.after([&] {
    j.memory.borrowed(1000, 7, j.world.now());
    j.memory.expired(j.a, 1000, 7);
  }) == "");
  CHECK_THAT(j.after([&] {
    j.memory.borrowed(1000, 7, j.world.now() + 1us);
    j.memory.expired(j.a, 1000, 7);
  }),
             Catch::StartsWith("a lease ended at its owner, host a, before its holder's end"));
}
