#include "queue/doorbell_batch.hpp"

#include "support/held.hpp"
#include "support/loopback.hpp"
#include "support/nobody.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/scope.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

using namespace cordma;
using test::held;
using test::held_by;
using test::loopback;
using test::nobody;
using test::nothing;

namespace {

constexpr unsigned signaled = IBV_SEND_SIGNALED;
const std::error_code no_memory{ENOMEM, std::system_category()};

/// Writes down what reaches the provider's post_send.
class doorbells {
 public:
  explicit doorbells(loopback& link) : post_send_{link.ctx.native_handle()->ops.post_send} {
    real_ = std::exchange(post_send_, &write_down);
    rung.clear();
    refused_from.reset();
  }
  ~doorbells() { post_send_ = real_; }
  doorbells(const doorbells&) = delete;

  /// The requests of a doorbell, each with the flag that asks for a completion entry.
  using flags = std::vector<unsigned>;
  static inline std::vector<flags> rung;
  /// The first request that the next doorbell refuses, and whether the device names the request.
  static inline std::optional<std::size_t> refused_from;
  static inline bool names_it = true;

 private:
  static int write_down(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    flags& now = rung.emplace_back();
    ibv_send_wr* before_refused = nullptr;
    for (ibv_send_wr* each = wr; each != nullptr; each = each->next) {
      if (now.size() + 1 == refused_from) before_refused = each;
      now.push_back(each->send_flags & signaled);
    }
    if (!std::exchange(refused_from, std::nullopt)) return real_(qp, wr, bad);
    REQUIRE(before_refused != nullptr);
    ibv_send_wr* const refused = std::exchange(before_refused->next, nullptr);
    const int rc = real_(qp, wr, bad);
    before_refused->next = refused;
    *bad = names_it ? refused : nullptr;
    return rc != 0 ? rc : ENOMEM;
  }
  static inline decltype(ibv_context_ops::post_send) real_ = nullptr;
  decltype(real_)& post_send_;
};

task<> go_on_together(event& all, std::function<task<>()> step) {
  co_await all.wait();
  co_await step();
}

/// Runs each step in a task, all in one turn, in this order. `a` has posted last.
task<> in_one_iteration(loopback& link, std::vector<std::function<task<>()>> steps) {
  event all{link.executor};
  scope tasks{link.executor};
  for (auto& step : steps) tasks.spawn(go_on_together(all, std::move(step)));
  all.set();
  co_await tasks.join();
}

struct memory {
  explicit memory(loopback& l) : link{l} {}
  [[nodiscard]] auto write_word() {
    return link.a->write(local.slice(0, 8), remote.remote_slice());
  }
  [[nodiscard]] auto write_long(queue_pair& by) {
    return by.write(local.slice(0, doorbell_batch::short_bytes_max + 1), remote.remote_slice());
  }
  void begin() { CHECK(link.run(write_word()) == 8); }

  loopback& link;
  local_mr local = link.memory(8192), remote = link.memory(8192);
};

}  // namespace

TEST_CASE("what the tasks of a turn await gets one doorbell and one completion entry",
          "[queue][device]") {
  loopback link;
  memory mr{link};
  mr.begin();
  const std::uint64_t before = link.driver.counters().completions;
  std::uint64_t found = 0;
  std::size_t moved = 0;
  {
    const doorbells heard{link};
    link.run(in_one_iteration(
        link, {[&]() -> task<> { moved += co_await mr.write_word(); },
               [&]() -> task<> {
                 moved += co_await link.a->read(mr.local.slice(64, 16), mr.remote.remote_slice());
               },
               [&]() -> task<> {
                 found = co_await link.a->fetch_add(mr.remote.remote_slice().slice(128, 8), 7);
               },
               [&]() -> task<> { moved += co_await mr.write_word(); }}));
  }
  CHECK(doorbells::rung == std::vector<doorbells::flags>{{0, 0, 0, signaled}});
  CHECK(link.driver.counters().completions == before + 1);
  CHECK(moved == 32);
  CHECK(found == 0);
  CHECK(link.run(link.a->fetch_add(mr.remote.remote_slice().slice(128, 8), 0)) == 7);
  CHECK(held_by(*link.a) == nothing);
  CHECK(link.driver.requests().of(request_kind::write).completed == 3);
}

TEST_CASE("what is before a message does not wait for the peer's receive", "[queue][device]") {
  loopback link{{.min_rnr_timer = 28}};
  memory mr{link};
  mr.begin();
  bool is_written = false, is_sent = false;
  {
    const doorbells heard{link};
    scope tasks{link.executor};
    tasks.spawn(in_one_iteration(link, {[&]() -> task<> {
                                          co_await mr.write_word();
                                          is_written = true;
                                        },
                                        [&]() -> task<> {
                                          co_await link.a->send(mr.local.slice(0, 8));
                                          is_sent = true;
                                        },
                                        [&]() -> task<> { co_await mr.write_word(); }}));
    link.run_until([&] { return is_written; });
    CHECK_FALSE(is_sent);
    link.b->post_recv(mr.remote.slice(4096, 8));
    link.run(tasks.join());
  }
  CHECK(doorbells::rung == std::vector<doorbells::flags>{{signaled, 0, signaled}});
  CHECK(is_sent);
}

TEST_CASE("a batch that is full goes without the rest of the turn", "[queue][device]") {
  loopback link;
  memory mr{link};
  mr.begin();
  const std::vector<std::function<task<>()>> steps(doorbell_batch::requests_max + 3,
                                                   [&]() -> task<> { co_await mr.write_word(); });
  const doorbells heard{link};
  link.run(in_one_iteration(link, steps));
  REQUIRE(doorbells::rung.size() == 2);
  CHECK(doorbells::rung[0].size() == doorbell_batch::requests_max);
  CHECK(doorbells::rung[1] == doorbells::flags{0, 0, signaled});
}

TEST_CASE("what is posted as a handle goes at once, behind what waits", "[queue][device]") {
  loopback link;
  memory mr{link};
  mr.begin();
  std::size_t doorbells_after_handle = 0;
  const auto waits = [&]() -> task<> { co_await mr.write_word(); };
  const doorbells heard{link};
  link.run(in_one_iteration(link, {waits,
                                   [&]() -> task<> {
                                     auto handle = link.a->post(
                                         write(mr.local.slice(0, 8), mr.remote.remote_slice()));
                                     doorbells_after_handle = doorbells::rung.size();
                                     co_await handle;
                                   },
                                   waits, waits}));
  const doorbells::flags one{signaled};
  CHECK(doorbells_after_handle == 2);
  CHECK(doorbells::rung == std::vector<doorbells::flags>{one, one, {0, signaled}});
}

TEST_CASE("what is before a long request does not wait for it", "[queue][device]") {
  loopback link;
  memory mr{link};
  mr.begin();
  const auto word = [&]() -> task<> { co_await mr.write_word(); };
  const auto longer = [&]() -> task<> { co_await mr.write_long(*link.a); };
  const doorbells heard{link};
  link.run(in_one_iteration(link, {word, longer, longer, word}));
  CHECK(doorbells::rung == std::vector<doorbells::flags>{{signaled, signaled, 0, signaled}});
}

TEST_CASE("queue pairs that take turns batch nothing", "[queue][device]") {
  loopback link;
  memory mr{link};
  mr.begin();
  const auto by_a = [&]() -> task<> { co_await mr.write_word(); };
  const auto by_b = [&]() -> task<> {
    co_await link.b->write(mr.local.slice(0, 8), mr.remote.remote_slice());
  };
  const doorbells heard{link};
  link.run(in_one_iteration(link, {by_b, by_a, by_b, by_a}));
  CHECK(doorbells::rung == std::vector<doorbells::flags>(4, {signaled}));
  // Requests that wait go before those of another queue pair.
  link.run(in_one_iteration(link, {by_a, by_a, by_b, by_a}));
  CHECK(std::vector(doorbells::rung.begin() + 4, doorbells::rung.end()) ==
        std::vector<doorbells::flags>{{0, signaled}, {signaled}, {signaled}});
}

TEST_CASE("a long request waits for the others of the turn, whoever posted last",
          "[queue][device]") {
  loopback link;
  memory mr{link};
  mr.begin();
  const auto long_by_b = [&]() -> task<> { co_await mr.write_long(*link.b); };
  const auto word_by_b = [&]() -> task<> {
    co_await link.b->write(mr.local.slice(0, 8), mr.remote.remote_slice());
  };
  const doorbells heard{link};
  link.run(in_one_iteration(link,
                            {long_by_b, word_by_b, [&]() -> task<> { co_await mr.write_word(); }}));
  CHECK(doorbells::rung == std::vector<doorbells::flags>{{0, signaled}, {signaled}});
}

TEST_CASE("where it is switched off, and in manual mode, each goes at once", "[queue][device]") {
  const bool is_manual = GENERATE(false, true);
  loopback link{{.cq = {.mode = is_manual ? completion_mode::manual : completion_mode::busy,
                        .doorbell_batching = is_manual}}};
  memory mr{link};
  scope tasks{link.executor};
  std::size_t ended = 0;
  const auto writes = [&]() -> task<> {
    co_await mr.write_word();
    co_await mr.write_long(*link.a);
    ++ended;
  };
  const doorbells heard{link};
  tasks.spawn(in_one_iteration(link, {writes, writes, writes}));
  link.run_until([&] {
    link.driver.reap();
    return ended == 3;
  });
  link.run(tasks.join());
  CHECK(doorbells::rung == std::vector<doorbells::flags>(6, {signaled}));
}

TEST_CASE("who stops waiting leaves a request that has gone, with the bytes of that time",
          "[queue][device][C2]") {
  loopback link;
  memory mr{link};
  mr.begin();
  scope stopped{link.executor};
  event all{link.executor};
  scope others{link.executor};
  mr.local.bytes()[0] = std::byte{1};
  const doorbells heard{link};
  std::size_t rung_by_stop = 0;
  stopped.spawn(go_on_together(all, [&]() -> task<> { co_await mr.write_word(); }));
  others.spawn(go_on_together(all, [&]() -> task<> {
    stopped.request_stop();
    rung_by_stop = doorbells::rung.size();
    mr.local.bytes()[0] = std::byte{2};  // The request went inline.
    co_return;
  }));
  others.spawn(go_on_together(all, []() -> task<> { co_return; }));
  all.set();
  link.run(others.join());
  link.run(stopped.join());
  CHECK(rung_by_stop == 1);
  CHECK(link.run(link.a->read(mr.local.slice(64, 8), mr.remote.remote_slice())) == 8);
  CHECK(mr.local.bytes()[64] == std::byte{1});
}

TEST_CASE("of a doorbell that the device refuses in part, what it will tell of ends as ever",
          "[queue][device][C6]") {
  loopback link;
  memory mr{link};
  mr.begin();
  local_mr of_batch = link.memory(64);
  memory_block& block = *of_batch.slice().block();
  link.b->post_recv(mr.remote.slice(4096, 8));
  std::vector<result<std::size_t>> ends;
  const auto writes = [&]() -> task<> {
    ends.push_back(co_await as_result(link.a->write(of_batch, mr.remote.remote_slice())));
  };
  const auto sends = [&]() -> task<> {
    ends.push_back(co_await as_result(link.a->send(of_batch.slice(0, 8))));
  };
  doorbells::names_it = GENERATE(true, false);
  {
    const doorbells heard{link};
    // The device takes the first three: of those the first has an entry.
    doorbells::refused_from = 3;
    link.run(in_one_iteration(link, {writes, sends, writes, writes, writes}));
  }
  REQUIRE(ends.size() == 5);
  std::size_t succeeded = 0;
  for (const auto& end : ends) {
    if (end.has_value()) {
      ++succeeded;
      continue;
    }
    CHECK(end.failure().code == no_memory);
    CHECK(end.failure().call == std::string_view{"ibv_post_send"});
  }
  CHECK_FALSE(link.a->has_failed());
  CHECK(succeeded == (doorbells::names_it ? 1 : 0));
  if (!doorbells::names_it) {
    // The device may have them all: it keeps slots and memory.
    CHECK(held_by(block) == held{.block_uses = 1});
    link.run_until([&] { return link.a->slots_in_use() == 4; });
    link.a.reset();
  } else {
    CHECK(held_by(*link.a, block) == held{.slots = 2, .block_uses = 1});
    CHECK(link.run(mr.write_word()) == 8);
    CHECK(held_by(*link.a) == nothing);
    const request_counters counted = link.driver.requests().of(request_kind::write);
    CHECK(counted.posted == 4);
    CHECK(counted.completed == 4);
    CHECK(counted.refused == 2);
  }
  CHECK(held_by(block) == nothing);
}

TEST_CASE("whose doorbell failed has failed, though the device has what it was for and does it",
          "[queue][device][C6]") {
  loopback link;
  memory mr{link};
  mr.begin();
  std::optional<result<std::size_t>> end;
  const auto single = [&]() -> task<> { end = co_await as_result(mr.write_word()); };
  const doorbells heard{link};
  doorbells::refused_from = 1;
  doorbells::names_it = false;
  link.run(in_one_iteration(link, {single}));
  REQUIRE_FALSE(end->has_value());
  CHECK(end->failure().code == no_memory);
}

TEST_CASE("a request of no slices moves nothing beside others, whatever those before it moved",
          "[queue][device]") {
  loopback link;
  memory mr{link};
  mr.begin();
  mr.local.bytes()[0] = std::byte{7};
  const remote_mr_slice untouched = mr.remote.remote_slice().slice(64, 8);
  const std::array<const_local_mr_slice, 0> nothing{};
  const auto writes = [&]() -> task<> { co_await mr.write_word(); };
  std::size_t moved = 1;
  link.run(in_one_iteration(link, {writes, writes, writes}));
  link.run(in_one_iteration(
      link,
      {writes, [&]() -> task<> { moved = co_await link.a->write(nothing, untouched); }, writes}));
  CHECK(moved == 0);
  CHECK(mr.remote.bytes()[0] == std::byte{7});
  CHECK(mr.remote.bytes()[64] == std::byte{0});
}

TEST_CASE("what is dropped while it waits for its doorbell goes all the same",
          "[queue][device][C2]") {
  loopback link;
  memory mr{link};
  mr.begin();
  mr.local.bytes()[8] = std::byte{7};
  nobody parent;
  auto dropped = std::make_unique<request_op<write_request<1>>>(
      link.a->write(mr.local.slice(8, 8), mr.remote.remote_slice()));
  const doorbells heard{link};
  link.run(in_one_iteration(link, {[&]() -> task<> {
                                     dropped->start(parent, {&link.executor, {}});
                                     co_return;
                                   },
                                   [&]() -> task<> {
                                     CHECK(doorbells::rung.empty());
                                     dropped.reset();
                                     CHECK(doorbells::rung.size() == 1);
                                     co_return;
                                   },
                                   []() -> task<> { co_return; }}));
  link.run_until([&] { return link.a->slots_in_use() == 0; });
  CHECK(mr.remote.bytes()[0] == std::byte{7});
  CHECK(held_by(mr.local) == nothing);
}

TEST_CASE("what waits for room goes on when the device refuses a doorbell", "[queue][device][E6]") {
  loopback link{{.capabilities = {.send_wr_max = 4, .recv_wr_max = 8}}};
  memory mr{link};
  mr.begin();
  const std::uint32_t room = link.a->sends().depth();
  std::size_t refused = 0, written = 0;
  const auto writes = [&]() -> task<> {
    const auto end = co_await as_result(mr.write_word());
    ++(end.has_value() ? written : refused);
  };
  {
    const doorbells heard{link};
    doorbells::refused_from = 1;
    doorbells::names_it = true;
    link.run(in_one_iteration(link, std::vector<std::function<task<>()>>(room + 2, writes)));
  }
  CHECK(refused >= 1);
  CHECK(refused + written == room + 2);
  CHECK(written >= 2);
  CHECK(held_by(*link.a) == nothing);
}

TEST_CASE("whose doorbell is refused as it is dropped leaves its place to who waits for room",
          "[queue][device][C2]") {
  loopback link{{.capabilities = {.send_wr_max = 4, .recv_wr_max = 8}}};
  memory mr{link};
  mr.begin();
  nobody parent;
  std::optional<decltype(mr.write_word())> dropped;
  std::size_t written = 0;
  const auto writes = [&]() -> task<> {
    const auto end = co_await as_result(mr.write_word());
    if (end.has_value()) ++written;
  };
  std::vector<std::function<task<>()>> steps{writes, [&]() -> task<> {
                                               dropped.emplace(mr.write_word());
                                               dropped->start(parent, {&link.executor, {}});
                                               co_return;
                                             }};
  while (steps.size() < link.a->sends().depth()) steps.emplace_back(writes);
  steps.emplace_back(writes);  // The last request waits for room.
  steps.emplace_back([&]() -> task<> {
    doorbells::refused_from = 1;  // The device takes the first.
    doorbells::names_it = true;
    dropped.reset();
    co_return;
  });
  steps.emplace_back([]() -> task<> { co_return; });
  {
    const doorbells heard{link};
    link.run(in_one_iteration(link, std::move(steps)));
  }
  CHECK(written == 1);
  CHECK(held_by(*link.a) == nothing);
}

TEST_CASE("a queue pair that ends takes with it what waits for its doorbell",
          "[queue][device][C6]") {
  loopback link;
  memory mr{link};
  mr.begin();
  const bool is_destroyed = GENERATE(false, true);
  std::optional<std::error_code> why;
  const request_outcome gone{.code = errc::disconnected, .call = "test"};
  link.run(in_one_iteration(link, {[&]() -> task<> {
                                     auto end = co_await as_result(mr.write_word());
                                     if (end.has_failure()) why = end.failure().code;
                                   },
                                   [&]() -> task<> {
                                     if (is_destroyed) {
                                       link.a.reset();
                                     } else {
                                       link.a->abort(gone);
                                     }
                                     co_return;
                                   },
                                   []() -> task<> { co_return; }}));
  CHECK(why == (is_destroyed ? errc::closed : errc::disconnected));
  link.a.reset();
  CHECK(held_by(mr.local) == nothing);
}
