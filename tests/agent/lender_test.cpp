// A lender and a holder that says nothing, or not what it should.
#include "../../lib/agent/lender.hpp"

#include "agent/agent.hpp"
#include "io/logger.hpp"
#include "support/held.hpp"
#include "support/loopback.hpp"
#include "support/manual_executor.hpp"
#include "support/until.hpp"
#include "support/verbs_faults.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::held;
using test::held_by;
using test::nothing;

namespace {

constexpr verbs::access arena_access = verbs::access::local_write | verbs::access::mw_bind;

agent_options impatient() {
  agent_options o;
  o.lending.grace = 1ms;
  return o;
}

/// An agent on `link.a`. Its peer has queue pairs, and no agent: it says nothing.
struct before_a_mute {
  explicit before_a_mute(const agent_options& options = impatient(),
                         std::uint8_t min_rnr_timer = 12)
      : link{{.min_rnr_timer = min_rnr_timer}}, gid{choose()} {
    owner.emplace(agent_resources{.data = *link.a,
                                  .lending = windows,
                                  .memory = link.allocator(arena_access),
                                  .port = link.port,
                                  .gid = gid,
                                  .log = &log},
                  options);
    link.connect(owner->control(), *mute);
    owner->post_receives();
    hears = link.memory(64);
    for (int n = 0; n < 32; ++n) mute->post_recv(hears.slice());
    owner->start(windows.flush_word());
  }
  ~before_a_mute() {
    link.a->abort({.code = errc::closed, .call = "test"});
    owner.reset();
  }
  verbs::gid_entry choose() { return verbs::choose_gid(link.ctx.gid_table(link.port.number)); }
  local_mr memory(std::size_t bytes) { return link.allocator(arena_access).allocate_zeroed(bytes); }
  loan lend(std::size_t bytes) { return link.run(owner->lends.lend(memory(bytes), {})); }
  std::error_code write(const remote_mr_slice& to) {
    local_mr one = link.memory(1);
    const auto outcome = link.outcome(link.b->write(one.slice(), to));
    return outcome.has_failure() ? outcome.failure().code : std::error_code{};
  }
  /// Loans, and memory that could be lent.
  [[nodiscard]] held in_use() { return held_by(*owner, link.allocator(arena_access)); }

  test::loopback link;
  std::vector<std::string> lines;
  detail::logger log{link.executor,
                     {.hook =
                          [this](const event_log::record& r) {
                            std::string line{to_string(r.kind)};
                            lines.push_back(line + ' ' + std::to_string(r.bytes));
                          },
                      .least_urgent = event_log::level::debug}};
  lending windows{link.ctx, link.pd};
  verbs::gid_entry gid;
  std::unique_ptr<queue_pair> mute = link.make_queue_pair({});
  local_mr hears;
  std::optional<agent> owner;
};

/// While it lives, no window of the device can be deallocated.
class windows_stay {
 public:
  explicit windows_stay(verbs::context& ctx)
      : operations_{ctx.native_handle()->ops}, before_{operations_.dealloc_mw} {
    operations_.dealloc_mw = [](ibv_mw*) { return EIO; };
  }
  ~windows_stay() { operations_.dealloc_mw = before_; }
  windows_stay(const windows_stay&) = delete;

 private:
  ibv_context_ops& operations_;
  int (*before_)(ibv_mw*);
};

}  // namespace

TEST_CASE("a holder that does not answer loses its access, and the memory comes back",
          "[agent][device][R2][R7]") {
  before_a_mute m;
  const held before = m.in_use();
  loan lent = m.lend(64);
  const remote_mr_slice raw = lent.remote_slice();
  CHECK(m.write(raw) == std::error_code{});
  {
    const loan_end end = m.link.run(lent.revoke());
    CHECK(end.reason == loan_end_reason::revoked);
    CHECK(end.memory.size_bytes() == 64);
  }
  CHECK(m.owner->context.counters.forced == 1);
  CHECK(m.in_use() == before);
  CHECK_FALSE(m.link.a->has_failed());  // The connection lives, until the peer tries.
  CHECK(m.write(raw) == make_error_code(wc_errc::remote_access));
}

TEST_CASE("memory that was invalidated is not lent", "[agent][device]") {
  before_a_mute m;
  std::vector<std::byte> bytes(64);
  mr_allocator& allocator = m.link.allocator(arena_access);
  local_mr hold = allocator.register_cached(bytes);
  CHECK(allocator.invalidate(bytes) == 1);
  const held before = held_by(*m.owner);
  const auto refused = m.link.outcome(m.owner->lends.lend(std::move(hold), {}));
  REQUIRE(refused.has_failure());
  CHECK(refused.failure().code == make_error_code(errc::stale_slice));
  CHECK(held_by(*m.owner) == before);
}

TEST_CASE("a loan that is dropped while its window is bound ends once that is done, or cannot be",
          "[agent][device][R2]") {
  for (const bool is_cut_off : {false, true}) {
    INFO(is_cut_off);
    before_a_mute m;
    const held before = m.in_use();
    {
      const support::started<task<loan>> lending{m.link.executor,
                                                 m.owner->lends.lend(m.memory(64), {})};
      REQUIRE_FALSE(lending.has_ended());
    }
    CHECK(held_by(*m.owner) == held{.leases = 1, .bytes_lent = 64});
    if (is_cut_off) {
      m.link.a->abort({.code = errc::disconnected, .call = "test"});
      m.owner->fail({.code = errc::disconnected, .call = "test"});
    }
    m.link.run(test::until(m.link.executor, [&] { return m.owner->context.counters.open == 0; }));
    CHECK(m.owner->context.counters.revoked == (is_cut_off ? 0 : 1));
    CHECK(m.owner->context.counters.offered == 0);
    // The slot of the bind keeps the memory until the queue pair is drained.
    m.link.run(test::until(m.link.executor, [&] { return m.link.a->sends().in_flight() == 0; }));
    CHECK(m.in_use() == before);
  }
}

TEST_CASE("a lease that nobody ends ends by itself", "[agent][device][R2]") {
  before_a_mute m;
  loan lent = m.link.run(m.owner->lends.lend(m.memory(64), {.lease = 1ms}));
  const loan_end end = m.link.run(lent.ended());
  CHECK(end.reason == loan_end_reason::expired);
  CHECK(end.memory.size_bytes() == 64);
  CHECK(m.owner->context.counters.expired == 1);
}

TEST_CASE("many windows end through few reserved slots", "[agent][device][R7]") {
  before_a_mute m;
  const held before = m.in_use();
  {
    std::vector<loan> loans;
    // More than 20 loans would not be heard: a mute gives no credit.
    for (int n = 0; n < 20; ++n) loans.push_back(m.lend(8));
  }
  m.link.run(test::until(m.link.executor, [&] { return m.owner->context.counters.open == 0; }));
  CHECK(m.owner->context.counters.revoked == 20);
  CHECK(m.in_use() == before);
}

TEST_CASE("a window that the send queue does not get to ends with the connection",
          "[agent][device][R7]") {
  agent_options options = impatient();
  std::uint8_t min_rnr_timer = 12;
  const char* by = "ibv_poll_cq";
  SECTION("the request before it fails, and it is flushed") {}
  SECTION("the request before it takes longer than revoke_timeout") {
    options.lending.revoke_timeout = 20ms;
    min_rnr_timer = 31;  // 3.4 s in all.
    by = "revoke";
  }
  before_a_mute m{options, min_rnr_timer};
  loan lent = m.lend(64);
  auto stuck = m.link.a->post(send(m.hears.first(1)));  // The peer has posted no receive.
  const loan_end end = m.link.run(lent.revoke());
  CHECK(end.reason == loan_end_reason::revoked);
  CHECK(end.memory.size_bytes() == 64);
  CHECK(m.link.a->has_failed());
  CHECK(std::string{m.link.a->failure_reason().call} == by);
  CHECK(m.link.outcome(stuck).has_failure());
}

TEST_CASE("what the device would not take from the peer is kept, and counted",
          "[agent][device][R7]") {
  before_a_mute m;
  loan lent = m.lend(64);
  const std::size_t kept_bytes = m.in_use().memory_bytes;
  {
    const windows_stay refused{m.link.ctx};
    m.link.a->abort({.code = errc::disconnected, .call = "test"});
    m.owner->fail({.code = errc::disconnected, .call = "test"});
  }
  const loan_end end = m.link.run(lent.ended());
  CHECK(end.reason == loan_end_reason::disconnected);
  CHECK(end.memory.size_bytes() == 0);
  CHECK(m.in_use() == held{.memory_bytes = kept_bytes, .stranded = 1});
  const std::vector<std::string> logged{"lease_opened 64", "memory_kept 64",
                                        "lease_disconnected 64"};
  CHECK(m.lines == logged);
}

TEST_CASE("what cannot be lent is refused with its reason", "[agent][device]") {
  before_a_mute m;
  const auto refused = [&](local_mr memory, const loan_options& options) {
    const auto outcome = m.link.outcome(m.owner->lends.lend(std::move(memory), options));
    return outcome.has_failure() ? outcome.failure().code : std::error_code{};
  };
  verbs::protection_domain other_pd{m.link.ctx};
  mr_allocator other{other_pd};
  CHECK(refused({}, {}) == make_error_code(errc::out_of_range));
  CHECK(refused(other.allocate_zeroed(8), {}) == make_error_code(errc::wrong_protection_domain));
  CHECK(refused(m.memory(8), {.access = verbs::access::none}) ==
        make_error_code(errc::access_denied));
  CHECK(refused(m.memory(8), {.access = verbs::access::local_write}) ==
        make_error_code(errc::access_denied));
  CHECK(refused(m.memory(8), {.lease = 0ms}) == make_error_code(errc::out_of_range));
  CHECK(refused(m.link.memory(8, verbs::access::none), {.access = verbs::access::remote_write}) ==
        make_error_code(errc::access_denied));
  CHECK(held_by(*m.owner) == nothing);
  // Another allocator's memory, whose registration allows no windows, gets a registration of its
  // own.
  loan lent = m.link.run(m.owner->lends.lend(m.link.memory(8), {}));
  CHECK(lent.isolation() == isolation::exact_registered);
}

TEST_CASE("an isolation that the device or the memory does not have is not replaced",
          "[agent][device]") {
  agent_options options = impatient();
  options.lending.isolation_min = isolation::exact;
  before_a_mute m{options};
  const auto outcome = m.link.outcome(m.owner->lends.lend(m.link.memory(8), {}));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == make_error_code(errc::not_supported));
}
