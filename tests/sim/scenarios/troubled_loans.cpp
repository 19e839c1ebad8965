#include "persistent.hpp"
#include "scenarios.hpp"

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t lent_bytes_max = 16 * kib;
/// How long a lender that goes on may take for what a timer asks of it.
constexpr duration lender_lateness_max = 300ms;
constexpr duration loan_wait = 1s;

/// Host 0 lends memory, and others use it, while each stands still, dies, or is cut off for longer
/// than a lease. What has come back in time is the lender's only.
struct troubled_lending : persistent {
  troubled_lending(sim::world& of, unsigned count) : persistent{of, count}, frozen(count) {}

  const duration lease_max = 20ms + moment(400ms);
  const duration grace = 1ms + moment(200ms);
  const duration revoke_timeout = 50ms + moment(200ms);
  const bool renews = w.random(1) == 0;  ///< Borrowers renew a loan once, at most.
  const bool has_cuts = w.random(1) == 0;
  std::vector<duration> frozen;  ///< how long each host has stood still, and will
  unsigned came_back = 0;

  [[nodiscard]] duration any_lease() const { return 10ms + moment(lease_max - 10ms); }

  // ---- The lender ------------------------------------------------------------------------------

  task<> keep(local_mr memory) {
    const part guard{7, memory.size_bytes()};
    std::ranges::copy(guard.bytes(), memory.bytes().begin());
    ++came_back;
    co_await sleep_for(moment(w.random(3) == 0 ? 3s : 200ms));
    require(guard.is_in(memory.bytes()), "memory that had come back was changed");
  }

  /// The lease begins when the borrower has accepted: at its own end, at the latest.
  task<> lend_once(connection& conn) {
    local_mr memory = conn.memory().allocate_zeroed(1 + w.random(lent_bytes_max - 1));
    const duration lease = any_lease();
    loan lent = co_await conn.send_local_mr(std::move(memory), {.lease = lease});
    const time_point began = w.now();
    const duration frozen_before = frozen[0];
    duration longest = 2 * lease + (renews ? lease_max : 0s);
    loan_end back;
    if (w.random(2) == 0) {
      longest = moment(lease);
      co_await sleep_for(longest);
      back = co_await lent.revoke();
    } else {
      back = co_await lent.ended();
    }
    longest += grace + revoke_timeout + lender_lateness_max + (frozen[0] - frozen_before);
    require(w.now() - began <= longest, "memory did not come back in time");
    require(back.memory.size_bytes() > 0, "memory did not come back");
    co_await keep(std::move(back.memory));
  }

  task<> lend(connection& conn) {
    for (;;) co_await lend_once(conn);
  }

  /// Takes what the borrower asked for and hands over: its flush was behind its WRITE.
  task<> take_back(connection& conn) {
    for (;;) {
      local_mr handed = co_await conn.receive_local_mr();
      require(is_pattern(handed.bytes(), handed.size_bytes() % 1000),
              "memory that was handed over: other bytes");
      co_await keep(std::move(handed));
    }
  }

  task<> serve_one(connection conn) { co_await when_any(lend(conn), lend(conn), take_back(conn)); }

  task<> serve(runtime& rt) {
    connection_changes changes;
    changes.agent = agent_options{};
    changes.agent->lending.bytes_max = 4 * lent_bytes_max;
    // Memory that a dead peer had asked for must come back before others get as much.
    changes.agent->lending.total_bytes_max = 8 * lent_bytes_max;
    changes.agent->lending.lease_max = lease_max;
    changes.agent->lending.grace = grace;
    changes.agent->lending.revoke_timeout = revoke_timeout;
    listener listening = rt.listen(at(0), {}, changes);
    co_await when_any(
        cordma::serve(listening, [this](connection conn) { return serve_one(std::move(conn)); }),
        until([this] { return are_done_from(1); }));
    done[0] = are_done_from(1);
  }

  // ---- A borrower ------------------------------------------------------------------------------

  /// Ends how a request on borrowed memory ended. Returns true if it was in time.
  static bool was_in_time(result<std::size_t>&& ended) {
    if (code_of(ended) == errc::lease_expired || code_of(ended) == errc::lease_ended) return false;
    static_cast<void>(std::move(ended).value());
    return true;
  }

  /// Writes and reads borrowed memory. Returns true if the lease lasted as long.
  task<bool> use(connection& conn, const const_local_mr& registered, const remote_mr& borrowed) {
    const std::size_t length = borrowed.size_bytes();
    local_mr copy = conn.memory().allocate_uninitialized(length);
    const std::uint64_t uses = 1 + w.random(5);
    for (std::uint64_t n = 0; n < uses; ++n) {
      const part written{std::size_t(w.random(1000)), length};
      auto ended = co_await as_result(conn.write(written.of(registered), borrowed));
      if (!was_in_time(std::move(ended))) co_return false;
      ended = co_await as_result(conn.read(copy, borrowed));
      if (!was_in_time(std::move(ended))) co_return false;
      require(written.is_in(copy.bytes()), "a READ of borrowed memory: other bytes");
      if (w.random(2) == 0) co_await sleep_for(moment(lease_max / 4));
    }
    co_return true;
  }

  task<> borrow(connection& conn, const const_local_mr& registered) {
    for (bool is_last = false; !is_last;) {
      result<remote_mr> lent =
          co_await as_result(with_timeout(conn.receive_remote_mr(), loan_wait));
      if (code_of(lent) == errc::timed_out) continue;
      remote_mr borrowed = std::move(lent).value();
      const bool was_calm = is_calm;
      const bool was_used = co_await use(conn, registered, borrowed);
      if (renews && w.random(1) == 0)
        static_cast<void>(co_await as_result(borrowed.renew(any_lease())));
      if (w.random(2) == 0) co_await sleep_for(moment(2 * lease_max));
      is_last = was_calm && was_used;
    }
  }

  task<> ask(connection& conn, const const_local_mr& registered) {
    for (bool is_last = false; !is_last;) {
      const bool was_calm = is_calm;
      const std::size_t length = 1 + w.random(lent_bytes_max - 1);
      remote_mr granted = co_await conn.request_remote_mr(length, {.lease = any_lease()});
      const part full{length % 1000, length};
      auto ended = co_await as_result(conn.write(full.of(registered), granted));
      if (!was_in_time(std::move(ended))) continue;
      if (w.random(2) == 0) co_await sleep_for(moment(lease_max));
      const auto handed = co_await as_result(conn.send_remote_mr(std::move(granted)));
      is_last = was_calm && handed.has_value();
    }
  }

  task<> borrow_all(runtime& rt, unsigned self) {
    connection_changes changes;
    changes.connect_timeout = 2s;
    changes.agent = agent_options{};
    changes.agent->operation_margin_min = 1ms + moment(5ms);
    changes.agent->request_timeout = 2s;
    connection conn = co_await rt.connect(at(0), changes);
    const const_local_mr registered = registered_pattern(conn.memory());
    co_await when_all(borrow(conn, registered), ask(conn, registered));
    done[self] = 1;
    co_await conn.close();
  }

  task<> live(runtime& rt, unsigned self) {
    co_await go_on(self, [&] { return self == 0 ? serve(rt) : borrow_all(rt, self); });
  }
};

/// Troubles a host again and again, mostly for longer than a lease.
/// The end of a cut also ends the faults that happen by chance, so that half of the seeds have
/// none.
void trouble_lending(const std::shared_ptr<troubled_lending>& all, unsigned number,
                     time_point until) {
  sim::world& w = all->w;
  const duration pause = all->moment(500ms), lasts = all->moment(2 * all->lease_max);
  if (w.now() + pause + lasts > until) return;
  w.after(pause, [all, number, until, lasts, &w] {
    sim::host& host = *all->hosts[number];
    if (!host.is_running()) return trouble_lending(all, number, until);
    sim::host& other = *all->hosts[number == 0 ? 1 : 0];
    const auto kind = w.random(all->has_cuts ? 5 : 2);
    switch (kind) {
      case 0: host.kill(); break;
      case 1: host.lose_power(); break;
      case 2:
        all->frozen[number] += lasts;
        host.freeze();
        break;
      case 3: w.partition(host, other); break;
      case 4: w.cut(host, other); break;
      default: w.cut(other, host);
    }
    all->is_down[number] = kind < 2;
    w.after(lasts, [all, number, until, kind, &w, &host] {
      all->is_down[number] = false;
      if (kind == 2) host.thaw();
      if (kind > 2) w.heal();
      trouble_lending(all, number, until);
    });
  });
}

}  // namespace

void play_troubled_loans(sim::world& w) {
  const auto all = std::make_shared<troubled_lending>(w, 2 + unsigned(w.random(1)));
  for (unsigned n = 0; n < all->size(); ++n) trouble_lending(all, n, w.now() + faults_time);
  play_until_well(all);
  all->require(all->came_back > 0, "no memory came back");
}

}  // namespace cordma::test
