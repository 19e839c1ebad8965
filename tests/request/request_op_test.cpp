#include <cordma/detail/request/request_op.hpp>

#include "support/foreign_task.hpp"
#include "support/held.hpp"
#include "support/loopback.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::held;
using test::held_by;
using test::loopback;
using test::nothing;
using test::same_bytes;

TEST_CASE("a posted request is on its way before it is awaited, and can be moved",
          "[request][device]") {
  loopback link;
  const local_mr from = link.pattern(4096);
  local_mr to = link.memory(4096);
  auto handle = link.a->post(write(from, to.remote_slice()));
  CHECK(held_by(*link.a) == held{.slots = 1});
  CHECK_FALSE(handle.has_ended());
  auto moved = std::move(handle);
  link.run_until([&] { return moved.has_ended(); });
  CHECK(same_bytes(to.bytes(), from.bytes()));
  auto moved_again = std::move(moved);
  CHECK(link.run(moved_again) == 4096);
  CHECK(link.run(moved_again) == 4096);  // The handle keeps its outcome.
}

TEST_CASE("a request of no slices moves nothing, whatever was moved before", "[request][device]") {
  loopback link;
  link.run([](loopback& l) -> task<> {
    local_mr from = l.pattern(64), to = l.memory(64), untouched = l.memory(64);
    const std::array<const_local_mr_slice, 0> nothing{};
    const std::array<local_mr_slice, 0> nowhere{};
    const auto is_untouched = [&] {
      return std::ranges::all_of(untouched.bytes(), [](std::byte b) { return b == std::byte{}; });
    };
    co_await l.a->write(from, to.remote_slice());
    const std::size_t written = co_await l.a->write(nothing, untouched.remote_slice());
    co_await l.a->read(to, from.remote_slice());
    const std::size_t read = co_await l.a->read(nowhere, from.remote_slice());
    CHECK(written + read == 0);
    CHECK(is_untouched());
    l.b->post_recv(to);
    co_await l.a->send(from);
    static_cast<void>(co_await l.b->next_message());
    for (const bool is_handle : {false, true}) {
      l.b->post_recv(untouched);
      if (is_handle) {
        auto handle = l.a->post(send(nothing));
        co_await handle;
      } else {
        co_await l.a->send(nothing);
      }
      const message empty = co_await l.b->next_message();
      CHECK(empty.size_bytes == 0);
      CHECK(is_untouched());
    }
  });
}

TEST_CASE("64 requests are in flight without 64 coroutines", "[request][device]") {
  loopback link;
  const local_mr from = link.pattern(64 * 64);
  local_mr to = link.memory(64 * 64);
  using handle = decltype(link.a->post(write(from, to.remote_slice())));
  std::vector<handle> handles;  // Grows: handles are moved while they are in flight.
  for (std::size_t i = 0; i < 64; ++i) {
    handles.push_back(
        link.a->post(write(from.slice(i * 64, 64), to.remote_slice().slice(i * 64, 64))));
  }
  CHECK(held_by(*link.a) == held{.slots = 64});
  for (handle& h : handles) CHECK(link.run(h) == 64);
  CHECK(same_bytes(to.bytes(), from.bytes()));
  CHECK(held_by(*link.a) == nothing);
}

TEST_CASE("each request has an end of its own, however deep its queue, and however full",
          "[request][device]") {
  const std::uint32_t depth = GENERATE(1u, 8u, 300u);
  loopback link{{.capabilities = {.send_wr_max = depth, .recv_wr_max = 8}}};
  local_mr word = link.memory(8);
  std::uint64_t before = 0;
  for (const std::uint32_t n : {1u, depth / 2 + 1, depth, depth / 3 + 1, depth}) {
    std::vector<request_op<atomic_request>> handles;
    for (std::uint32_t i = 0; i < n; ++i)
      handles.push_back(link.a->post(fetch_add(word.remote_slice(), 1)));
    for (auto& handle : handles) CHECK(link.run(handle) == before++);
    CHECK(link.a->sends().is_idle());
  }
}

TEST_CASE("a handle that waits for room may be destroyed by who awaits it", "[request][device]") {
  loopback link{{.capabilities = {.send_wr_max = 8, .recv_wr_max = 8}}};
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  struct owner : waiter {
    owner() noexcept : waiter{&told} {}
    static std::coroutine_handle<> told(waiter& self) noexcept {
      static_cast<owner&>(self).was_told = true;
      return std::noop_coroutine();
    }
    std::optional<request_op<write_request<1>>> handle;
    bool was_told = false;
  } last;
  while (link.a->sends().has_room())
    static_cast<void>(link.a->post(write(from.slice(0, 0), to.remote_slice())));
  last.handle.emplace(link.a->post(write(from, to.remote_slice())));
  REQUIRE_FALSE(last.handle->start(last, {}));
  last.handle.reset();
  link.run_until([&] { return link.a->sends().is_idle(); });
  CHECK(same_bytes(to.bytes(), from.bytes()));
  CHECK_FALSE(last.was_told);
}

TEST_CASE("dropping a handle recalls nothing", "[request][device]") {
  loopback link;
  const local_mr from = link.pattern(1 << 16);
  local_mr to = link.memory(1 << 16);
  static_cast<void>(link.a->post(write(from, to.remote_slice())));
  CHECK(held_by(*link.a) == held{.slots = 1});
  link.run_until([&] { return link.a->slots_in_use() == 0; });
  CHECK(same_bytes(to.bytes(), from.bytes()));
}

TEST_CASE("a handle can be awaited again after a wait that timed out", "[request][device]") {
  loopback link;
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  // The peer has no receive yet: the device tries again for a while.
  auto handle = link.a->post(send(from));
  for (int i = 0; i < 2; ++i) {
    const auto outcome = link.outcome(with_timeout(handle, 0ms));
    REQUIRE(outcome.has_failure());
    CHECK(outcome.failure().code == errc::timed_out);
  }
  CHECK(held_by(*link.a) == held{.slots = 1});
  link.b->post_recv(to);
  CHECK(link.run(with_timeout(handle, 20s)) == 64);
}

TEST_CASE("a handle outlives the coroutine that awaits it", "[request][device][C1]") {
  loopback link;
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  auto handle = std::make_unique<request_op<send_request<1>>>(link.a->post(send(from)));
  struct nobody : waiter {
    nobody()
        : waiter{
              [](waiter&) noexcept -> std::coroutine_handle<> { return std::noop_coroutine(); }} {}
  } parent;
  stop_source stop;
  {
    auto await = [](auto& h) -> task<> { static_cast<void>(co_await h); };
    task<> abandoned = await(*handle);
    abandoned.start(parent, {&link.executor, stop});
  }
  SECTION("where it is") {}
  SECTION("moved elsewhere") {
    auto elsewhere = std::make_unique<request_op<send_request<1>>>(std::move(*handle));
    handle = std::move(elsewhere);  // The one it was moved from is gone before the stop.
  }
  stop.request_stop();
  link.b->post_recv(to);
  CHECK(link.run(*handle) == 64);
}

TEST_CASE("a handle dropped while it waits for room is posted all the same", "[request][device]") {
  loopback link{{.capabilities = {.send_wr_max = 2, .recv_wr_max = 8}}};
  const std::uint32_t depth = link.a->sends().depth();
  const local_mr from = link.pattern(depth * 8 + 8);
  local_mr to = link.memory(depth * 8 + 8);
  const auto nth = [&](std::size_t i) {
    return write(from.slice(i * 8, 8), to.remote_slice().slice(i * 8, 8));
  };
  for (std::size_t i = 0; i < depth; ++i) static_cast<void>(link.a->post(nth(i)));
  {
    auto queued = link.a->post(nth(depth));
    auto moved = std::move(queued);
    CHECK(held_by(*link.a) == held{.slots = depth});
  }
  link.run_until([&] { return link.a->sends().is_idle(); });
  CHECK(same_bytes(to.bytes(), from.bytes()));
  CHECK(held_by(from) == nothing);
}

TEST_CASE("a queued handle whose wait was stopped is moved with its requests",
          "[request][device][E6]") {
  loopback link{{.capabilities = {.send_wr_max = 1, .recv_wr_max = 8}}};
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  for (std::size_t i = 0; i < link.a->sends().depth(); ++i)
    static_cast<void>(link.a->post(send(from)));  // The peer has no receive yet.
  auto queued = link.a->post(write(from, to.remote_slice()));
  CHECK(link.outcome(with_timeout(queued, 0ms)).failure().code == errc::timed_out);
  auto moved = std::move(queued);
  local_mr message = link.memory(64);
  for (std::size_t i = 0; i < link.a->sends().depth(); ++i) link.b->post_recv(message);
  CHECK(link.run(moved) == 64);
  CHECK(same_bytes(to.bytes(), from.bytes()));
}

TEST_CASE("a handle that failed tells why wherever it is moved, and when its queue pair is gone",
          "[request][device][C6]") {
  loopback link;
  local_mr mr = link.memory(64);
  const remote_mr_slice good = mr.remote_slice();
  auto handle = link.a->post(write(mr, {good.address(), 64, good.rkey() ^ 0x5555}));
  link.run_until([&] { return handle.has_ended(); });
  const std::uint32_t number = link.a->verbs().num();
  auto moved = std::move(handle);
  link.a.reset();
  auto moved_again = std::move(moved);
  const auto outcome = moved_again.take_result();
  CHECK(outcome.failure().code == wc_errc::remote_access);
  CHECK(outcome.failure().object.number == number);
}

TEST_CASE("a queued handle whose awaiter is destroyed is posted all the same",
          "[request][device][C1]") {
  loopback link{{.capabilities = {.send_wr_max = 1, .recv_wr_max = 8}}};
  const std::uint32_t depth = link.a->sends().depth();
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  for (std::size_t i = 0; i < depth; ++i) {
    static_cast<void>(link.a->post(write(from.slice(0, 0), to.remote_slice())));
  }
  struct nobody : waiter {
    nobody()
        : waiter{
              [](waiter&) noexcept -> std::coroutine_handle<> { return std::noop_coroutine(); }} {}
  } parent;
  {
    auto body = [](queue_pair& qp, const local_mr& f, local_mr& t) -> task<> {
      auto handle = qp.post(write(f, t.remote_slice()));
      static_cast<void>(co_await handle);
    };
    task<> abandoned = body(*link.a, from, to);
    abandoned.start(parent, {&link.executor, {}});
    CHECK_FALSE(link.a->sends().is_idle());
  }
  link.run_until([&] { return link.a->sends().is_idle(); });
  CHECK(same_bytes(to.bytes(), from.bytes()));
}

TEST_CASE("a batch has one completion entry, and gives all its values", "[request][device]") {
  loopback link;
  const local_mr from = link.pattern(300);
  local_mr to = link.memory(300);
  local_mr back = link.memory(300);
  const remote_mr_slice remote = to.remote_slice();
  const std::uint64_t before = link.driver.counters().completions;
  auto batch = link.a->post_all(write(from.slice(0, 100), remote),
                                write(from.slice(100, 200), remote.slice(100, 200)),
                                read(back, remote, {.fence = true}));
  CHECK(held_by(*link.a) == held{.slots = 3});
  CHECK(link.run(batch) == std::tuple{100u, 200u, 300u});
  CHECK(link.driver.counters().completions == before + 1);
  CHECK(held_by(*link.a) == nothing);
  CHECK(same_bytes(back.bytes(), from.bytes()));
  CHECK(held_by(from) == nothing);
}

TEST_CASE("a fenced request sends what the READ before it has brought", "[request][device]") {
  loopback link;
  const local_mr from = link.pattern(8);
  local_mr between = link.memory(8);
  local_mr to = link.memory(8);
  auto batch = link.a->post_all(read(between, from.remote_slice()),
                                write(between, to.remote_slice(), {.fence = true}));
  link.run(batch);
  CHECK(same_bytes(to.bytes(), from.bytes()));
}

TEST_CASE("a batch names the first request that failed", "[request][device][C6]") {
  loopback link;
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  const remote_mr_slice good = to.remote_slice();
  SECTION("by the device") {
    const remote_mr_slice bad{good.address(), 64, good.rkey() ^ 0x5555};
    auto batch = link.a->post_all(write(from, good), write(from, bad), write(from, good));
    const auto outcome = link.outcome(batch);
    REQUIRE(outcome.has_failure());
    CHECK(outcome.failure().code == wc_errc::remote_access);
    CHECK(outcome.failure().index == 1);
  }
  SECTION("refused before posting: none is posted") {
    local_mr stale = link.memory(64);
    const const_local_mr_slice gone = stale.slice();
    stale.reset();
    auto batch = link.a->post_all(write(from, good), write(from, good), write(gone, good));
    const auto outcome = link.outcome(batch);
    REQUIRE(outcome.has_failure());
    CHECK(outcome.failure().code == errc::stale_slice);
    CHECK(outcome.failure().index == 2);
    CHECK(held_by(*link.a) == nothing);
  }
  CHECK(held_by(from) == nothing);
}

TEST_CASE("a batch about the same memory ends as its requests do, whatever becomes of it",
          "[request][device][C6]") {
  loopback link{{.cq = {.mode = completion_mode::manual}}};
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  const remote_mr_slice raw = to.remote_slice();
  lease_block& lease = lease_block::make(&link.a->sends());
  lease.grant(test::all_access, link.executor.now() + 1h);
  const remote_mr_slice good{raw.address(), 64, raw.rkey(), lease};
  const remote_mr_slice bad{raw.address(), 64, raw.rkey() ^ 0x5555, lease};
  const bool fails = GENERATE(false, true);
  using batch = decltype(link.a->post_all(write(from, good), write(from, good), write(from, good)));
  std::optional<batch> posted;
  posted.emplace(
      link.a->post_all(write(from, good), write(from, fails ? bad : good), write(from, good)));
  CHECK(held_by(from) == held{.block_uses = 1});
  CHECK(lease.is_in_use());
  const auto reap_all = [&link] {
    const time_point deadline = link.executor.now() + 20s;
    while (link.a->slots_in_use() > 0 && link.executor.now() < deadline) link.driver.reap();
    CHECK(held_by(*link.a) == nothing);
  };

  SECTION("awaited, where it was moved to") {
    batch elsewhere{std::move(*posted)};
    posted.reset();
    reap_all();
    auto outcome = link.outcome(elsewhere);
    REQUIRE(outcome.has_failure() == fails);
    if (fails) {
      CHECK(outcome.failure().index == 1);
    } else {
      CHECK(std::move(outcome).value() == std::tuple{64u, 64u, 64u});
    }
  }
  SECTION("dropped") {
    posted.reset();
    CHECK(lease.is_in_use());
    reap_all();
  }
  SECTION("when its queue pair goes") {
    link.a.reset();
    CHECK(link.outcome(*posted).failure().code == errc::closed);
  }
  CHECK(held_by(from) == nothing);
  CHECK_FALSE(lease.is_in_use());
  const request_counters writes = link.driver.requests().of(request_kind::write);
  CHECK(writes.posted == 3);
  CHECK(writes.completed + writes.failed == 3);
  lease.release();
}

TEST_CASE("an unsignaled request ends with a later signaled one", "[request][device]") {
  loopback link;
  const local_mr from = link.pattern(256);
  local_mr to = link.memory(256);
  const remote_mr_slice remote = to.remote_slice();
  const std::uint64_t before = link.driver.counters().completions;
  auto first = link.a->post(write(from, remote, {.signaled = false}));
  auto second = link.a->post(write(from, remote, {.signaled = false}));
  SECTION("awaited alone, nothing would end it") {
    const auto outcome = link.outcome(second);
    REQUIRE(outcome.has_failure());
    CHECK(outcome.failure().code == errc::not_signaled);
    CHECK(held_by(*link.a) == held{.slots = 2});  // The device has it all the same.
  }
  SECTION("a signaled one ends all before it") {
    auto last = link.a->post(write(from, remote));
    CHECK(link.run(first) == 256);
    CHECK(second.has_ended());
    CHECK(link.run(last) == 256);
    CHECK(link.driver.counters().completions == before + 1);
    CHECK(held_by(from) == nothing);
  }
  CHECK(link.run(link.a->write(from, remote)) == 256);
  CHECK(held_by(*link.a) == nothing);
}

TEST_CASE("a program that never asks for an entry still gets its slots back", "[request][device]") {
  loopback link{{.capabilities = {.send_wr_max = 8, .recv_wr_max = 8}}};
  const local_mr from = link.pattern(8);
  local_mr to = link.memory(8);
  for (int i = 0; i < 300; ++i) {  // Passes the wrap of the sequence numbers.
    static_cast<void>(link.a->post(write(from, to.remote_slice(), {.signaled = false})));
  }
  link.run_until([&] { return link.a->sends().in_flight() <= 4; });
  CHECK(link.run(link.a->write(from, to.remote_slice())) == 8);
  CHECK(link.a->sends().is_idle());
}

TEST_CASE("a stop before the start means that it never happens", "[request][device]") {
  loopback link;
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  link.run([](loopback& l) -> task<> {
    scope inner{l.executor};
    inner.request_stop();
    local_mr mr = l.memory(64);
    const auto writer = [](loopback& on, local_mr& m) -> task<> {
      static_cast<void>(co_await on.a->write(m, m.remote_slice()));
    };
    inner.spawn(writer(l, mr));
    co_await inner.join();
    CHECK(held_by(*l.a) == nothing);
  });
}

TEST_CASE("a request that was stopped while it waited for room is posted when it is awaited anew",
          "[request][device][E6]") {
  loopback link{{.cq = {.mode = completion_mode::manual},
                 .capabilities = {.send_wr_max = 1, .recv_wr_max = 1}}};
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  for (std::uint32_t i = 0; i < link.a->sends().depth(); ++i)
    static_cast<void>(link.a->post(write(from, to.remote_slice())));
  const auto stop_and_await = [&link](auto& late) {
    CHECK(link.outcome(with_timeout(late, 0ms)).failure().code == errc::timed_out);
    CHECK_FALSE(late.is_queued());
    while (link.a->slots_in_use() > 0) link.driver.reap();

    std::size_t moved = 0;
    scope waiting{link.executor};
    waiting.spawn(
        [](auto& request, std::size_t& bytes) -> task<> { bytes = co_await request; }(late, moved));
    static_cast<void>(link.executor.run_ready());
    CHECK(held_by(*link.a) == held{.slots = 1});
    while (link.a->slots_in_use() > 0) link.driver.reap();
    link.run(waiting.join());
    CHECK(moved == 64);
  };
  auto late = link.a->write(from, to.remote_slice());
  stop_and_await(late);
  CHECK(held_by(from) == nothing);
}

TEST_CASE("operations and handles combine without a frame", "[request][device]") {
  loopback link;
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  auto handle = link.a->post(write(from, to.remote_slice()));
  const auto both = link.run(when_all(handle, link.b->read(to, to.remote_slice())));
  CHECK(both == std::tuple{64u, 64u});
  auto never = link.a->next_message();
  const auto first = link.run(when_any(std::move(never), link.b->write(from, to.remote_slice())));
  CHECK(first.index() == 1);
}

TEST_CASE("a coroutine of another library awaits requests and messages", "[request][device]") {
  loopback link;
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  const auto body = [](loopback& l, const local_mr& f, local_mr& t) -> support::foreign_task {
    auto handle = l.a->post(send(f));
    const message got = co_await l.b->recv(t);
    CHECK(got.size_bytes == 64);
    const std::size_t sent = co_await handle;
    CHECK(sent == 64);
    const std::size_t written = co_await l.a->write(f, t.remote_slice());
    CHECK(written == 64);
  };
  auto foreign = body(link, from, to);
  link.run_until([&] { return foreign.done(); });
  foreign.rethrow();
  CHECK(same_bytes(to.bytes(), from.bytes()));
}
