#include <cordma/detail/queue/send_operation.hpp>

#include "support/held.hpp"
#include "support/loopback.hpp"
#include "support/nobody.hpp"
#include "support/soak.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/verbs/memory_region.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::held;
using test::held_by;
using test::loopback;
using test::nobody;
using test::nothing;

namespace {

/// Registered memory that says when it is released, and that then takes no access any more.
struct watched_memory {
  explicit watched_memory(loopback& link, std::size_t size_bytes)
      : bytes(size_bytes),
        region{std::in_place, link.pd, bytes.data(), bytes.size(), test::all_access},
        owner{bytes.data(), bytes.size(), region->lkey(), region->rkey(),
              memory_block::make({link.pd.native_handle(), test::all_access, &release, this})},
        block{*owner.slice().block()} {}
  watched_memory(watched_memory&&) = delete;
  static void release(memory_block& block, void* context) noexcept {
    auto& self = *static_cast<watched_memory*>(context);
    self.region.reset();
    std::vector<std::byte>{}.swap(self.bytes);  // AddressSanitizer sees who comes later.
    self.released = true;
    memory_block::recycle(block);
  }

  bool released = false;
  std::vector<std::byte> bytes;
  std::optional<verbs::memory_region> region;
  local_mr owner;
  memory_block& block;
};

enum class op_kind { send, write, write_with_imm, read, fetch_add, recv, next_message, batch };
constexpr int op_kinds = 8;

task<> operate(queue_pair& qp, op_kind what, local_mr_slice mr, remote_mr_slice remote) {
  switch (what) {
    case op_kind::send: co_await qp.send(mr); break;
    case op_kind::write: co_await qp.write(mr, remote); break;
    case op_kind::write_with_imm: co_await qp.write_with_imm(mr, remote, 1); break;
    case op_kind::read: co_await qp.read(mr, remote); break;
    case op_kind::fetch_add: co_await qp.fetch_add(remote.first(8), 1); break;
    case op_kind::recv: co_await qp.recv(mr); break;
    case op_kind::next_message: co_await qp.next_message(); break;
    case op_kind::batch: {
      auto handle = qp.post_all(write(mr, remote), read(mr, remote));
      co_await handle;
      break;
    }
  }
}

}  // namespace

TEST_CASE("abandoned memory stays registered until the completion", "[queue][device][C1][M10]") {
  loopback link;
  local_mr peer = link.memory(1 << 16);
  const op_kind what =
      GENERATE(op_kind::send, op_kind::write, op_kind::read, op_kind::recv, op_kind::batch);
  CAPTURE(int(what));
  watched_memory mr{link, 1 << 16};
  {
    nobody parent;
    task<> abandoned = operate(*link.a, what, mr.owner, peer.remote_slice());
    CHECK_FALSE(abandoned.start(parent, {&link.executor, {}}));
    CHECK(held_by(mr.block) != nothing);
  }
  const std::uint32_t held = mr.block.holders();
  CHECK(held >= 2);
  const local_mr_slice stale = mr.owner;
  mr.owner.reset();
  CHECK_FALSE(mr.released);
  CHECK(mr.block.holders() == held - 1);
  CHECK(link.outcome(link.a->write(stale, peer.remote_slice())).failure().code ==
        errc::stale_slice);
  if (GENERATE(false, true)) {  // The queue pair is destroyed before the completion is reaped.
    link.a.reset();
    CHECK(mr.released);
    return;
  }
  if (what == op_kind::send) link.b->post_recv(peer);
  if (what == op_kind::recv) static_cast<void>(link.b->post(send(peer.slice(0, 8))));
  link.run_until([&] { return link.a->slots_in_use() == 0; });
  CHECK_FALSE(link.a->has_failed());
  // A message keeps its buffer until it is taken.
  if (what == op_kind::recv) link.run(link.a->next_message());
  CHECK(mr.released);
}

TEST_CASE("each slice of a request keeps its memory until the completion", "[queue][device][M10]") {
  loopback link;
  const std::size_t size = link.a->verbs().capabilities().inline_max + 1;
  local_mr peer = link.memory(3 * size);
  std::array<std::optional<watched_memory>, 3> parts;
  for (auto& part : parts) part.emplace(link, size);
  const bool is_destroyed = GENERATE(false, true);
  {
    const auto handle = link.a->post(
        write(gather(parts[0]->owner.slice(), parts[1]->owner.slice(), parts[2]->owner.slice()),
              peer.remote_slice()));
    for (auto& part : parts) {
      CHECK(held_by(part->block) == held{.block_uses = 1});
      part->owner.reset();
      CHECK_FALSE(part->released);
    }
  }
  if (is_destroyed) {
    link.a.reset();
  } else {
    link.run_until([&] { return link.a->slots_in_use() == 0; });
  }
  for (const auto& part : parts) CHECK(part->released);
}

namespace {

/// Requests and messages that each hold their memory: at most so many holders can be missed.
std::uint32_t uses(const loopback& link) {
  std::uint32_t all = 0;
  for (const queue_pair* qp : {link.a.get(), link.b.get()}) {
    all += qp->slots_in_use() + qp->receives().pending_messages();
  }
  return all;
}

/// Abandoned sends may find no receive. Memory that goes too early ends in other ways
/// (`wc_errc::local_protection`), since every message fits in every buffer.
bool is_of_our_making(std::error_code code) {
  return !code || code == wc_errc::rnr_retry_exceeded || code == wc_errc::retry_exceeded;
}

struct abandoned_tasks {
  std::vector<nobody> parents;
  std::vector<task<>> tasks;

  /// `countable`: none that needs no hold, as atomics.
  void start(loopback& link, watched_memory& mr, local_mr& peer, bool countable,
             std::mt19937_64& random) {
    for (nobody& parent : parents) {
      auto what = op_kind(random() % op_kinds);
      if (countable && what == op_kind::fetch_add) what = op_kind::write;
      queue_pair& qp = random() % 2 == 0 ? *link.a : *link.b;
      std::size_t size = std::size_t{8} << (random() % 10);
      if (what == op_kind::recv) size = mr.owner.size_bytes();
      tasks.push_back(operate(qp, what, mr.owner.slice(0, size), peer.remote_slice().first(size)));
      static_cast<void>(tasks.back().start(parent, {&link.executor, {}}));
    }
  }
};

/// Starts operations of all kinds, lets some time pass, and destroys their frames and their memory
/// whatever has become of them. Returns in how many rounds some were in flight then.
std::uint64_t abandon_at_random(std::uint64_t rounds, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  loopback link{{.capabilities = {.send_wr_max = 8, .recv_wr_max = 8}}};
  std::uint64_t in_flight = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    CAPTURE(round);
    watched_memory mr{link, 4096};
    local_mr peer = link.memory(4096);
    const bool countable = random() % 2 == 0;
    {
      abandoned_tasks all{std::vector<nobody>(random() % 12), {}};
      all.start(link, mr, peer, countable, random);
      for (std::uint64_t iterations = random() % 3; iterations > 0; --iterations) {
        link.run(link.executor.sleep_for(std::chrono::microseconds{random() % 300}));
      }
      std::ranges::shuffle(all.tasks, random);
      if (random() % 2 == 0) mr.owner.reset();
    }
    mr.owner.reset();
    const auto check = [&] {
      const std::uint32_t used = uses(link);
      if (countable) REQUIRE(mr.released == (used == 0));
    };
    if (uses(link) > 0) ++in_flight;
    check();
    if (random() % 4 != 0)
      link.run(link.executor.sleep_for(std::chrono::microseconds{random() % 500}));
    check();
    for (const queue_pair* qp : {link.a.get(), link.b.get()}) {
      const request_outcome& why = qp->failure_reason();
      CAPTURE(why.to_failure(0).to_string());
      REQUIRE(is_of_our_making(why.code));
    }
    // Requests in flight would wait for receives for ever; a new pair starts afresh.
    link.reconnect();
    REQUIRE(mr.released);
  }
  return in_flight;
}

task<> work(queue_pair& qp, queue_pair& peer, std::uint64_t seed, local_mr_slice mr,
            remote_mr_slice remote) {
  std::mt19937_64 random{seed};
  for (;;) {
    const auto what = op_kind(random() % op_kinds);
    const std::size_t size = std::size_t{8} << (random() % 10);
    if (what == op_kind::send || what == op_kind::write_with_imm) {
      // With a buffer of the peer for each: who sends to none fails the queue pair after a while.
      co_await when_all(operate(peer, op_kind::recv, mr, remote),
                        operate(qp, what, mr.first(size), remote.first(size)));
    } else {
      // Any message must fit in any buffer.
      co_await operate(qp, what, what == op_kind::recv ? mr : mr.first(size), remote.first(size));
    }
  }
}

task<> storm(loopback& link, std::uint64_t seed, local_mr& mr) {
  std::mt19937_64 random{seed};
  scope workers{link.executor};
  for (int i = 0; i < 12; ++i) {
    queue_pair& qp = i % 2 == 0 ? *link.a : *link.b;
    queue_pair& peer = i % 2 == 0 ? *link.b : *link.a;
    workers.spawn(work(qp, peer, random(), mr.slice(), mr.remote_slice()));
  }
  co_await sleep_for(std::chrono::microseconds{random() % 2000});
  workers.request_stop();
  const result<void> joined = co_await as_result(workers.join());
  CHECK(joined.has_value());
}

void storms(std::uint64_t rounds, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  loopback link{{.capabilities = {.send_wr_max = 8, .recv_wr_max = 8}}};
  local_mr mr = link.memory(8192);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    link.run(storm(link, random(), mr));
    CAPTURE(round, link.a->failure_reason().to_failure(1).to_string(),
            link.b->failure_reason().to_failure(2).to_string());
    REQUIRE_FALSE(link.a->has_failed());
    REQUIRE_FALSE(link.b->has_failed());
    if (random() % 2 == 0) {
      const request_outcome why{.code = errc::disconnected, .call = "test"};
      link.a->abort(why);
      link.b->abort(why);
      link.run(with_timeout(link.a->drained_event().wait(), 10s));
      link.run(with_timeout(link.b->drained_event().wait(), 10s));
      CHECK(held_by(link) == nothing);
    }
    link.reconnect();
    REQUIRE(held_by(mr) == nothing);
  }
}

}  // namespace

TEST_CASE("an abandoned wait is forgotten by one that is stopped before it begins",
          "[queue][device][C1][C4]") {
  loopback link{{.cq = {.mode = completion_mode::manual}}};
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  std::vector<request_op<write_request<1>>> before;
  while (link.a->sends().has_room()) before.push_back(link.a->post(write(from, to.remote_slice())));
  stop_source first, second;
  second.request_stop();
  {
    auto waits = link.a->write(from, to.remote_slice());
    {
      nobody abandons;
      REQUIRE_FALSE(waits.start(abandons, {&link.executor, first}));
    }
    nobody is_stopped, goes_on;
    REQUIRE(waits.start(is_stopped, {&link.executor, second}));
    CHECK(waits.take_result().is_cancelled());
    REQUIRE_FALSE(waits.start(goes_on, {&link.executor, {}}));
  }
  first.request_stop();
  while (link.a->slots_in_use() > 0) link.driver.reap();
}

TEST_CASE("operations are abandoned at any point", "[queue][device][C1]") {
  CHECK(abandon_at_random(200, 1) > 50);
}

TEST_CASE("soak: operations are abandoned at any point", "[queue][device][.soak-abandon]") {
  const std::uint64_t rounds = test::soak::count(10'000);
  CHECK(abandon_at_random(rounds, test::soak::seed()) >= rounds / 4);
}

TEST_CASE("everything is stopped while completions arrive", "[queue][device][C4]") {
  storms(100, 1);
}

TEST_CASE("soak: everything is stopped while completions arrive", "[queue][device][.soak-storms]") {
  storms(test::soak::count(10'000), test::soak::seed());
}

TEST_CASE("all operations in flight end when their queue pair goes to ERROR",
          "[queue][device][C2]") {
  loopback link;
  local_mr mr = link.memory(1 << 20);
  std::vector<std::error_code> ends;
  scope waiting{link.executor};
  const auto wait_for = [](task<> body, std::vector<std::error_code>& to) -> task<> {
    const auto outcome = co_await as_result(std::move(body));
    to.push_back(outcome.has_failure() ? outcome.failure().code : std::error_code{});
  };
  for (const op_kind what : {op_kind::recv, op_kind::next_message, op_kind::write, op_kind::read,
                             op_kind::send, op_kind::batch, op_kind::write_with_imm}) {
    waiting.spawn(wait_for(operate(*link.a, what, mr, mr.remote_slice()), ends));
  }
  static_cast<void>(link.executor.run_ready());
  CHECK(held_by(*link.a) != nothing);
  link.a->verbs().to_error();
  link.run(with_timeout(waiting.join(), 10s));
  CHECK(ends.size() == 7);
  CHECK(std::ranges::count(ends, std::error_code{wc_errc::flushed}) > 0);
  CHECK(link.a->has_failed());
  link.run(with_timeout(link.a->drained_event().wait(), 10s));
}

TEST_CASE("two reads fill the two halves of one registration at once", "[queue][device][M10]") {
  loopback link;
  local_mr from = link.pattern(1 << 17);
  local_mr to = link.memory(1 << 17);
  const std::size_t half = to.size_bytes() / 2;
  const remote_mr_slice remote = from.remote_slice();
  // The later half first: what is whose, only the slices say.
  auto upper = link.a->post(read(to.slice(half, half), remote.slice(half, half)));
  auto lower = link.a->post(read(to.slice(0, half), remote.first(half)));
  CHECK(held_by(to) == held{.block_uses = 1});
  CHECK(link.run(when_all(lower, upper)) == std::tuple{half, half});
  CHECK(test::same_bytes(to.bytes(), from.bytes()));
  CHECK(held_by(to) == nothing);
}
