#include <cordma/detail/transfer/prepared_op.hpp>

#include "support/aborts.hpp"
#include "support/loopback.hpp"
#include "support/outcome.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <memory>
#include <optional>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::failure_of;
using test::loopback;
using test::same_bytes;

namespace {

struct place {
  explicit place(loopback& link) : mr{link.memory(64)} {}
  [[nodiscard]] std::uint32_t holders() const { return mr.slice().block()->holders(); }
  local_mr mr;
};

/// What `make` gives, which cannot be moved.
template <class Make>
auto on_heap(Make make) {
  return std::unique_ptr<decltype(make())>{new auto(make())};
}

void reap_all(loopback& link) {
  const time_point deadline = link.home.now() + 20s;
  while (link.a->slots_in_use() > 0 && link.home.now() < deadline) link.driver.reap();
  CHECK(link.a->slots_in_use() == 0);
}

}  // namespace

TEST_CASE("what is prepared is posted each time it is awaited, with the bytes of that time",
          "[transfer][device]") {
  loopback link;
  place from{link}, to{link};
  auto copy = link.a->prepare(write(from.mr, to.mr.remote_slice()));
  for (int i = 0; i < 300; ++i) {  // Passes the wrap of the sequence numbers.
    from.mr.bytes()[0] = std::byte(i);
    REQUIRE(link.run(copy) == 64);
    REQUIRE(to.mr.bytes()[0] == std::byte(i));
  }
  CHECK(link.a->slots_in_use() == 0);
  CHECK(link.driver.requests().of(request_kind::write).completed == 300);
}

TEST_CASE("a batch that is prepared has one completion entry each time, and gives all its values",
          "[transfer][device]") {
  loopback link;
  place from{link}, to{link}, back{link};
  const remote_mr_slice there = to.mr.remote_slice();
  auto batch =
      link.a->prepare(write(gather(from.mr.first(24), from.mr.slice(24, 8)), there),
                      write(from.mr.slice(32, 16), there.slice(32, 16)),
                      read(back.mr, there, {.fence = true}), fetch_add(there.slice(56, 8), 3));
  const std::uint64_t before = link.driver.counters().completions;
  for (std::uint64_t i = 0; i < 3; ++i) {
    CHECK(link.run(batch) == std::tuple{32u, 16u, 64u, 3 * i});
    CHECK(same_bytes(back.mr.first(48).bytes(), from.mr.first(48).bytes()));
  }
  CHECK(link.driver.counters().completions == before + 3);
  CHECK(link.a->slots_in_use() == 0);
}

TEST_CASE("what is prepared combines, and an outcome that nobody took is there when it is awaited",
          "[transfer][device]") {
  loopback link;
  place from{link}, to{link};
  lease_block& ended = lease_block::make(&link.a->sends());
  const remote_mr_slice there = to.mr.remote_slice();
  const remote_mr_slice gone{there.address(), there.size_bytes(), there.rkey(), ended};
  auto copy = link.a->prepare(write(from.mr, there));
  auto refused = link.a->prepare(write(from.mr, gone));
  CHECK(link.outcome(when_all(copy, refused)).failure().code == errc::access_denied);
  link.run_until([&] { return copy.has_ended(); });
  const auto posted = [&] { return link.driver.requests().of(request_kind::write).posted; };
  CHECK(posted() == 1);
  CHECK(link.run(copy) == 64);
  CHECK(posted() == 1);
  CHECK(link.run(copy) == 64);
  CHECK(posted() == 2);
  ended.let_go();
}

TEST_CASE("what is prepared holds its memory as long as it lives, and its slots beyond that",
          "[transfer][device][M10][C1]") {
  loopback link{{.cq = {.mode = completion_mode::manual}}};
  place to{link};
  std::optional<place> from{link};
  memory_block& block = *from->mr.slice().block();
  const remote_mr_slice there = to.mr.remote_slice();
  const std::size_t first_bytes = GENERATE(as<std::size_t>{}, 0, 64);
  const auto first = write(from->mr.first(first_bytes), there);
  auto copies = on_heap([&] { return link.a->prepare(first, write(from->mr, there)); });
  from.reset();  // Its slices are stale from here on: nobody else can name it.
  CHECK(block.holders() > 0);
  copies->post();
  CHECK(link.a->slots_in_use() == 2);
  SECTION("dropped in flight") {
    copies.reset();
    CHECK(block.holders() == 1);
    reap_all(link);
  }
  SECTION("dropped when it has ended") {
    reap_all(link);
    CHECK(std::get<1>(link.run(*copies)) == 64);
    CHECK(block.holders() == 1);
    copies.reset();
  }
  SECTION("when its queue pair goes first") {
    link.a.reset();
    CHECK(block.holders() == 0);
    CHECK(link.outcome(*copies).failure().code == errc::closed);
  }
  CHECK(block.holders() == 0);
}

TEST_CASE("what is wrong with requests is said where they are prepared",
          "[transfer][device][M10]") {
  loopback link{{.capabilities = {.send_wr_max = 4, .recv_wr_max = 4}}};
  place from{link}, to{link};
  const auto good = write(from.mr, to.mr.remote_slice());
  std::optional<place> gone{link};
  const auto stale = write(gone->mr, to.mr.remote_slice());
  gone.reset();
  const failure why =
      failure_of([&] { return on_heap([&] { return link.a->prepare(good, stale); }); });
  CHECK(why.code == errc::stale_slice);
  CHECK(why.index == 1);
  CHECK(why.object.number == link.a->verbs().num());
  const failure too_long = failure_of([&] {
    return on_heap([&] { return link.a->prepare(write(from.mr, to.mr.remote_slice().first(8))); });
  });
  CHECK(too_long.code == errc::out_of_range);
  const failure too_many = failure_of([&] {
    return on_heap([&] { return link.a->prepare(good, good, good, good, good, good, good, good); });
  });
  CHECK(too_many.code == errc::limit_exceeded);
  CHECK(from.holders() == 1);
  CHECK(link.driver.requests().of(request_kind::write).refused == 11);

  link.a->abort({.code = errc::refused, .call = "test"});
  CHECK(failure_of([&] { return on_heap([&] { return link.a->prepare(good); }); }).code ==
        errc::disconnected);
}

TEST_CASE("the lease of what is prepared is asked each time", "[transfer][device][R2]") {
  loopback link;
  place mine{link}, theirs{link};
  lease_block& lease = lease_block::make(&link.a->sends());
  lease.grant(test::all_access, link.home.now() + 1h);
  const remote_mr_slice raw = theirs.mr.remote_slice();
  const remote_mr_slice borrowed{raw.address(), raw.size_bytes(), raw.rkey(), lease};
  auto both = link.a->prepare(write(mine.mr, raw), write(mine.mr, borrowed));
  CHECK(link.run(both) == std::tuple{64u, 64u});
  CHECK_FALSE(lease.is_in_use());
  lease.refuse(errc::lease_ended);
  const auto outcome = link.outcome(both);
  CHECK(outcome.failure().code == errc::lease_ended);
  CHECK(outcome.failure().index == 1);
  CHECK(link.a->sends().is_idle());
  lease.let_go();
}

TEST_CASE("what is prepared waits for room in its turn, and is withdrawn when it goes",
          "[transfer][device][E6]") {
  loopback link{{.cq = {.mode = completion_mode::manual},
                 .capabilities = {.send_wr_max = 4, .recv_wr_max = 4}}};
  place from{link}, to{link};
  std::optional<place> own{link};
  memory_block& block = *own->mr.slice().block();
  const auto one = write(own->mr, to.mr.remote_slice());
  auto batch = on_heap([&] { return link.a->prepare(one, one); });
  own.reset();
  // The last of them asks for no entry: the batch finds a queue that needs one soon.
  std::vector<request_op<write_request<1>>> ahead;
  for (std::uint32_t i = 1; i < link.a->sends().depth(); ++i)
    ahead.push_back(link.a->post(write(from.mr, to.mr.remote_slice(), {.signaled = false})));
  batch->post();
  CHECK(batch->is_queued());
  auto behind = link.a->post(write(from.mr, to.mr.remote_slice()));
  CHECK(behind.is_queued());
  const auto await_batch = [&] {
    while (!batch->has_ended()) link.driver.reap();
    CHECK(link.run(*batch) == std::tuple{64u, 64u});
  };
  std::size_t batches = 0;
  SECTION("posted") {
    await_batch();
    batch->post();
    await_batch();
    batches = 2;
  }
  SECTION("withdrawn: who is behind goes on") {
    batch.reset();
    CHECK_FALSE(behind.is_queued());
  }
  reap_all(link);
  CHECK(behind.has_ended());
  CHECK(link.driver.requests().of(request_kind::write).posted == ahead.size() + 1 + 2 * batches);
  batch.reset();
  CHECK(block.holders() == 0);
  CHECK(from.holders() == 1);
}

TEST_CASE("a stopped wait for what is prepared leaves it under way, to be awaited again",
          "[transfer][device][E6]") {
  loopback link;
  place from{link}, to{link};
  auto message = link.a->prepare(send(from.mr));
  // Nobody receives it yet: the device tries again for a while.
  CHECK(link.outcome(with_timeout(message, 0ms)).failure().code == errc::timed_out);
  CHECK(link.a->slots_in_use() == 1);
  link.b->post_recv(to.mr);
  CHECK(link.run(message) == 64);
  CHECK(link.driver.requests().of(request_kind::send).posted == 1);
  link.b->post_recv(to.mr);
  CHECK(link.run(message) == 64);
  CHECK(link.driver.requests().of(request_kind::send).posted == 2);
}

TEST_CASE("what is prepared fails as any request does, and then finds its queue pair disconnected",
          "[transfer][device][C6]") {
  loopback link;
  place from{link}, to{link};
  const remote_mr_slice good = to.mr.remote_slice();
  const remote_mr_slice bad{good.address(), 64, good.rkey() ^ 0x5555};
  auto batch = link.a->prepare(write(from.mr, good), write(from.mr, bad), write(from.mr, good));
  const auto outcome = link.outcome(batch);
  CHECK(outcome.failure().code == wc_errc::remote_access);
  CHECK(outcome.failure().index == 1);
  CHECK(link.outcome(batch).failure().code == errc::disconnected);
  CHECK(from.holders() == 2);
}

TEST_CASE("what is prepared and awaited by the tasks of a turn shares a doorbell",
          "[transfer][device]") {
  loopback link;
  place from{link}, to{link};
  auto first = link.a->prepare(write(from.mr, to.mr.remote_slice()));
  // Awaited, it has an entry all the same.
  auto second = link.a->prepare(write(from.mr, to.mr.remote_slice(), {.signaled = false}));
  CHECK(link.run(first) == 64);
  const std::uint64_t before = link.driver.counters().completions;
  event both{link.home};
  const auto copy = [](event& start, auto& what) -> task<> {
    co_await start.wait();
    co_await what;
  };
  scope tasks{link.home};
  tasks.spawn(copy(both, first));
  tasks.spawn(copy(both, second));
  SECTION("of what has bytes") {}
  SECTION("and of what has none, described as the device wants it") {
    auto nothing = link.a->prepare(write(from.mr.first(0), to.mr.remote_slice()));
    tasks.spawn(copy(both, nothing));
    tasks.spawn([](event& start) -> task<> { co_await start.wait(); }(both));
    both.set();
    link.run(tasks.join());
    CHECK(link.driver.counters().completions == before + 1);
    return;
  }
  both.set();
  link.run(tasks.join());
  CHECK(link.driver.counters().completions == before + 1);
  CHECK(link.driver.requests().of(request_kind::write).completed == 3);
}

TEST_CASE("batches that one task awaits in its turn end with their last, whatever their slots",
          "[transfer][device]") {
  loopback link;
  place from{link}, other{link}, to{link};
  const remote_mr_slice there = to.mr.remote_slice();
  auto in_one_slot = link.a->prepare(write(from.mr.slice(0, 8), there),
                                     write(from.mr.slice(8, 16), there.slice(8, 16)));
  auto in_two = link.a->prepare(write(from.mr.slice(0, 8), there),
                                write(other.mr.slice(8, 16), there.slice(8, 16)));
  auto of_two_kinds = link.a->prepare(write(from.mr.slice(0, 8), there),
                                      fetch_add(there.slice(56, 8), 1, {.fence = true}));
  constexpr std::uint64_t times = 100;
  std::uint64_t as_expected = 0;
  event turn{link.home};
  const auto await_each = [&]() -> task<> {
    co_await turn.wait();
    // So that a batch begins before the wrap of the sequence numbers and ends after it.
    co_await link.a->write(from.mr, there);
    for (std::uint64_t i = 0; i < times; ++i) {
      const auto one = co_await in_one_slot;
      const auto two = co_await in_two;
      const auto kinds = co_await of_two_kinds;
      if (one == std::tuple{8u, 16u} && two == one && kinds == std::tuple{8u, i}) ++as_expected;
    }
  };
  scope tasks{link.home};
  tasks.spawn(await_each());
  turn.set();
  link.run(tasks.join());
  CHECK(as_expected == times);
  CHECK(link.a->slots_in_use() == 0);
  CHECK(link.driver.requests().of(request_kind::write).completed == 1 + 5 * times);
  CHECK(link.driver.requests().of(request_kind::atomic).completed == times);
}

TEST_CASE("what is prepared and nobody waits for is posted time and again, and keeps its memory",
          "[transfer][device][C1]") {
  loopback link{{.cq = {.mode = completion_mode::manual},
                 .capabilities = {.send_wr_max = 8, .recv_wr_max = 4}}};
  place to{link};
  std::optional<place> from{link};
  memory_block& block = *from->mr.slice().block();
  const auto one = write(from->mr, to.mr.remote_slice());
  auto copies = on_heap([&] { return link.a->prepare(one, one); });
  from.reset();
  for (int i = 0; i < 300; ++i) {  // Passes the wrap of the sequence numbers.
    while (!copies->try_post()) link.driver.reap();
  }
  const auto await_last = [&] {
    copies->post();
    while (!copies->has_ended()) link.driver.reap();
    CHECK(link.run(*copies) == std::tuple{64u, 64u});
  };
  await_last();
  CHECK(link.driver.requests().of(request_kind::write).posted == 602);
  CHECK(link.driver.requests().of(request_kind::write).completed == 602);
  CHECK(link.driver.counters().completions < 200);
  CHECK(block.holders() == 1);

  SECTION("all of it taken") {}
  SECTION("dropped in flight") {
    REQUIRE(copies->try_post());
    copies.reset();
    CHECK(block.holders() == 1);
    // Their end is told with a later one's.
    auto last = link.a->post(write(to.mr, to.mr.remote_slice()));
    while (!last.has_ended()) link.driver.reap();
  }
  copies.reset();
  CHECK(block.holders() == 0);
}

TEST_CASE("of what is prepared and nobody waits for, each keeps its own memory",
          "[transfer][device][C1]") {
  loopback link{{.cq = {.mode = completion_mode::manual, .poll_batch = 1}}};
  place to{link};
  std::optional<place> one{link}, other{link};
  memory_block& first = *one->mr.slice().block();
  memory_block& second = *other->mr.slice().block();
  auto copy = on_heap([&] { return link.a->prepare(write(one->mr, to.mr.remote_slice())); });
  auto copies = on_heap([&] {
    return link.a->prepare(write(other->mr, to.mr.remote_slice()),
                           read(other->mr.slice(8, 8), to.mr.remote_slice()));
  });
  one.reset();
  other.reset();
  REQUIRE(copy->try_post());
  REQUIRE(copies->try_post());
  auto middle = link.a->post(write(to.mr, to.mr.remote_slice()));
  REQUIRE(copies->try_post());
  REQUIRE(copy->try_post());
  copy.reset();
  copies.reset();
  const auto held = [&] { return first.holders() > 0 && second.holders() > 0; };
  CHECK(held());
  while (!middle.has_ended()) link.driver.reap();
  CHECK(link.a->slots_in_use() == 3);
  CHECK(held());  // By those that were posted last.
  auto last = link.a->post(write(to.mr, to.mr.remote_slice()));
  while (!last.has_ended()) link.driver.reap();
  CHECK(first.holders() == 0);
  CHECK(second.holders() == 0);
}

TEST_CASE("batches of any length that nobody waits for find room, whatever else has no entry",
          "[transfer][device][E6]") {
  const std::uint32_t depth = GENERATE(as<std::uint32_t>{}, 8, 10, 16);
  loopback link{{.cq = {.mode = completion_mode::manual},
                 .capabilities = {.send_wr_max = depth, .recv_wr_max = 4}}};
  place from{link}, to{link};
  const auto one = write(from.mr, to.mr.remote_slice());
  auto three = link.a->prepare(one, one, one);
  auto mixed = link.a->prepare(one, read(from.mr, to.mr.remote_slice()), one);
  std::uint64_t posted = 0;
  const time_point deadline = link.home.now() + 20s;
  for (int i = 0; i < 300 && link.home.now() < deadline; ++i) {
    const bool took = i % 2 == 0 ? three.try_post() : mixed.try_post();
    posted += took ? 3 : 0;
    if (!took) link.driver.reap();
    if (i % 7 == 0 && link.a->sends().has_room()) {
      static_cast<void>(link.a->post(write(from.mr, to.mr.remote_slice(), {.signaled = false})));
      ++posted;
    }
  }
  CHECK(posted > 200);
  auto last = link.a->post(one);
  while (!last.has_ended()) link.driver.reap();
  CHECK(link.a->sends().is_idle());
  const transfer_counters counted = link.driver.requests();
  CHECK(counted.of(request_kind::write).completed + counted.of(request_kind::read).completed ==
        posted + 1);
}

TEST_CASE("what cannot be posted at once is not, and awaiting it tells why",
          "[transfer][device][R2]") {
  loopback link{{.cq = {.mode = completion_mode::manual},
                 .capabilities = {.send_wr_max = 4, .recv_wr_max = 4}}};
  place from{link}, to{link};
  lease_block& lease = lease_block::make(&link.a->sends());
  lease.grant(test::all_access, link.home.now() + 1h);
  const remote_mr_slice raw = to.mr.remote_slice();
  const remote_mr_slice borrowed{raw.address(), raw.size_bytes(), raw.rkey(), lease};
  auto copy = link.a->prepare(write(from.mr, borrowed));
  std::vector<request_op<write_request<1>>> ahead;
  for (std::uint32_t i = 0; i < link.a->sends().depth(); ++i)
    ahead.push_back(link.a->post(write(from.mr, raw)));
  CHECK_FALSE(copy.try_post());
  const auto posted = [&] { return link.driver.requests().of(request_kind::write).posted; };
  CHECK(posted() == ahead.size());
  reap_all(link);
  CHECK(copy.try_post());
  CHECK(lease.is_in_use());
  auto last = link.a->post(write(from.mr, raw));
  while (!last.has_ended()) link.driver.reap();
  CHECK_FALSE(lease.is_in_use());
  lease.refuse(errc::lease_ended);
  CHECK_FALSE(copy.try_post());
  CHECK(posted() == ahead.size() + 2);
  CHECK(link.outcome(copy).failure().code == errc::lease_ended);
  link.a->abort({.code = errc::refused, .call = "test"});
  CHECK_FALSE(copy.try_post());
  CHECK(link.outcome(copy).failure().code == errc::disconnected);
  lease.let_go();
}

TEST_CASE("what is prepared is kept by a device that is lost until its queue pair is gone",
          "[transfer][device][C1]") {
  loopback link;
  place to{link};
  std::optional<place> from{link};
  memory_block& block = *from->mr.slice().block();
  // Nobody receives it: it stays in flight.
  auto message = on_heap([&] { return link.a->prepare(send(from->mr)); });
  from.reset();
  message->post();
  link.driver.fail({.code = errc::device_failed, .call = "test"});
  CHECK(link.outcome(*message).failure().code == errc::device_failed);
  message.reset();
  CHECK(block.holders() == 1);
  link.a.reset();
  CHECK(block.holders() == 0);
}

TEST_CASE("a prepared operation whose queue pair is gone cannot be awaited, and says so",
          "[transfer][device]") {
  const bool has_ended = GENERATE(true, false);
  const support::death gone = support::run_in_child([has_ended] {
    loopback link;
    place from{link}, to{link};
    auto copy = on_heap([&] { return link.a->prepare(write(from.mr, to.mr.remote_slice())); });
    if (has_ended) copy->post();
    link.a.reset();
    if (has_ended) static_cast<void>(link.outcome(*copy));
    link.run([](loopback& l, auto& what) -> task<> {
      co_await l.home.sleep_for(1ns);
      co_await what;
    }(link, *copy));
  });
  CHECK(gone.aborted);
  CHECK_THAT(gone.text, Catch::Contains("the queue pair of what was prepared"));
}
