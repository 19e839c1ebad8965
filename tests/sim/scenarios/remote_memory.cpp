#include "scenarios.hpp"
#include "support.hpp"

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t lent_max = 64 * kib;
constexpr std::size_t guard_offset = 7;

/// A host that lends memory in all ways and takes it back, and others that use it for as long as
/// they can. What has come back belongs to the lender only.
struct lending_out : cast {
  lending_out(sim::world& of, unsigned count) : cast{of, count} {}
  unsigned came_back = 0;
  bool is_calm = false;  ///< No connection fails.
  /// Owners wait until requests that were posted in time must have ended.
  bool is_patient = w.random(1) == 0;
  /// Leases are short, and requests are posted until just before their ends.
  const bool is_hasty = w.random(1) == 0;
  const duration lease_min = is_hasty ? 20ms : 200ms;
  bool gave_up = false;  ///< A program has failed too often.

  /// Memory that a peer had: nobody's WRITE may change it any more.
  task<> keep(local_mr memory) {
    const part guard{guard_offset, memory.size_bytes()};
    std::ranges::copy(guard.bytes(), memory.bytes().begin());
    ++came_back;
    co_await sleep_for(moment(300ms));
    require(guard.is_in(memory.bytes()), "memory that had come back was changed");
  }

  // ---- The lender ------------------------------------------------------------------------------

  task<> lend(connection& conn) {
    for (unsigned n = 0; n < 6; ++n) {
      local_mr memory = conn.memory().allocate_uninitialized(1 + w.random(lent_max - 1));
      const part first{n, memory.size_bytes()};
      std::ranges::copy(first.bytes(), memory.bytes().begin());
      loan lent = co_await conn.send_local_mr(std::move(memory), {.lease = lease_min + moment(1s)});
      loan_end back;
      if (w.random(1) == 0) {
        co_await sleep_for(moment(200ms));
        back = co_await lent.revoke();
      } else {
        back = co_await lent.ended();
      }
      if (back.memory.size_bytes() > 0) co_await keep(std::move(back.memory));
    }
  }

  /// Takes what peers asked for and hand over: they have written it full.
  task<> take_back(connection& conn) {
    for (;;) {
      local_mr handed = co_await conn.receive_local_mr();
      const std::size_t offset = handed.size_bytes() % 1000;
      require(is_pattern(handed.bytes(), offset), "memory that was handed over: other bytes");
      co_await keep(std::move(handed));
    }
  }

  /// Lends more at once than the send queue takes invalidations, and takes all back at once.
  task<> lend_many(connection& conn) {
    const auto lend_one = [&]() -> task<> {
      loan lent = co_await conn.send_local_mr(conn.memory().allocate_zeroed(64), {.lease = 10s});
      co_await sleep_for(20ms);
      const loan_end back = co_await lent.revoke();
      if (back.memory.size_bytes() > 0) ++came_back;
    };
    co_await with_scope([&](scope& all) -> task<> {
      for (unsigned n = 0; n < 24; ++n) all.spawn(lend_one());
      co_return;
    });
  }

  task<> serve(connection conn) {
    const auto lend_all = [&]() -> task<> {
      if (w.random(3) == 0) co_await lend_many(conn);
      co_await lend(conn);
      co_await conn.ended();
    };
    const auto ended = co_await as_result(when_any(lend_all(), take_back(conn)));
    if (is_calm && ended.has_failure() && code_of(ended) != errc::disconnected)
      w.fail("the lender: " + ended.failure().to_string());
  }

  task<> accept_all(runtime& rt) {
    connection_changes changes;
    changes.agent = agent_options{};
    changes.agent->lending.bytes_max = 8 * lent_max;
    if (w.random(1) == 0) changes.capabilities = {{.send_wr_max = 4}};
    changes.agent->lending.grace = is_patient ? 5s : 50ms;
    listener listening = rt.listen(at(0), {}, changes);
    co_await when_any(
        cordma::serve(listening, [this](connection conn) { return serve(std::move(conn)); }),
        until([&] { return !are_running_from(1); }));
  }

  // ---- A borrower ------------------------------------------------------------------------------

  void require_access(const std::error_code& code) const {
    require(!is_patient || code != wc_errc::remote_access,
            "memory came back while a request of its holder was under way");
  }

  /// Hands memory over behind a WRITE that is in flight.
  task<> hand_over(connection& conn, const const_local_mr& registered, remote_mr borrowed) {
    const std::size_t length = borrowed.size_bytes();
    const part full{length % 1000, length};
    auto in_flight = conn.post(write(full.of(registered), borrowed));
    static_cast<void>(co_await as_result(conn.send_remote_mr(std::move(borrowed))));
    require_access(code_of(co_await as_result(in_flight)));
  }

  /// Lets memory go while a WRITE to it is under way.
  task<> leave(connection& conn, const const_local_mr& registered, remote_mr borrowed) {
    const part written{std::size_t(w.random(1000)), borrowed.size_bytes()};
    auto in_flight = conn.post(write(written.of(registered), borrowed));
    borrowed = {};
    require_access(code_of(co_await as_result(in_flight)));
  }

  /// Reads and writes borrowed memory until it decides to return it, or may no longer use it.
  task<> use(connection& conn, const const_local_mr& registered, remote_mr borrowed) {
    const std::size_t length = borrowed.size_bytes();
    local_mr copy = conn.memory().allocate_uninitialized(length);
    const unsigned uses = w.random(1) == 0 ? 40 : 4;
    for (unsigned n = 0; n < uses; ++n) {
      const part written{std::size_t(w.random(1000)), length};
      result<std::size_t> used = co_await as_result(conn.write(written.of(registered), borrowed));
      if (used.has_value()) used = co_await as_result(conn.read(copy, borrowed));
      require_access(code_of(used));
      if (!used.has_value()) co_return;
      require(written.is_in(copy.bytes()), "a READ of borrowed memory: other bytes");
      if (w.random(3) == 0) co_await sleep_for(moment(10ms));
      if (w.random(9) == 0) {
        static_cast<void>(co_await as_result(borrowed.renew(lease_min + moment(500ms))));
      }
    }
    switch (w.random(3)) {
      case 0: co_await hand_over(conn, registered, std::move(borrowed)); break;
      case 1: co_await leave(conn, registered, std::move(borrowed)); break;
      case 2: co_await sleep_for(moment(2s)); break;  // The lease may end meanwhile.
      default: break;
    }
  }

  task<> use_loans(connection& conn, const const_local_mr& registered) {
    for (unsigned n = 0; n < 6; ++n) {
      // A loan that has ended is received by nobody.
      result<remote_mr> lent = co_await as_result(with_timeout(conn.receive_remote_mr(), 2s));
      if (code_of(lent) != errc::timed_out) co_await use(conn, registered, std::move(lent).value());
    }
  }

  task<> request(connection& conn, const const_local_mr& registered) {
    local_mr copy = conn.memory().allocate_uninitialized(lent_max);
    for (unsigned n = 0; n < 6; ++n) {
      const std::size_t length = 1 + w.random(lent_max - 1);
      remote_mr granted =
          co_await conn.request_remote_mr(length, {.lease = lease_min + moment(1s)});
      auto first = co_await as_result(conn.read(copy.first(length), granted));
      if (code_of(first) == errc::lease_expired) continue;
      static_cast<void>(std::move(first).value());
      require(std::ranges::all_of(copy.first(length).bytes(),
                                  [](std::byte b) { return b == std::byte{}; }),
              "memory of a request is not zero");
      if (w.random(2) == 0) {
        co_await use(conn, registered, std::move(granted));
      } else {
        co_await hand_over(conn, registered, std::move(granted));
      }
    }
  }

  task<> borrow(runtime& rt) {
    connection_changes changes;
    changes.agent = agent_options{};
    if (is_hasty) {
      changes.agent->operation_margin_min = moment(2ms);
      changes.agent->operation_margin_percent = unsigned(w.random(1));
    }
    connection conn;
    if (is_calm) {
      conn = co_await connect_patiently(rt, at(0), changes);
    } else {
      conn = co_await rt.connect(at(0), changes);
    }
    const const_local_mr registered = registered_pattern(conn.memory());
    co_await when_all(use_loans(conn, registered), request(conn, registered));
    if (is_calm) co_await close(conn);
    co_await conn.close();
  }

  task<> live(runtime& rt, unsigned self) {
    const auto live_once = [&] { return self == 0 ? accept_all(rt) : borrow(rt); };
    if (is_calm) {
      co_await live_once();
    } else {
      const bool ended = co_await persist(live_once);
      gave_up = gave_up || !ended;
    }
  }
};

}  // namespace

void play_remote_memory(sim::world& w) {
  const auto all = start_all<lending_out>(w, 2 + unsigned(w.random(1)));
  w.run(10min);
  all->require(all->came_back > 0 || all->gave_up, "no memory came back");
}

void play_loans(sim::world& w) {
  w.forbid_receiver_not_ready();
  const auto all = start_all<lending_out>(w, 2);
  all->is_calm = all->is_patient = true;
  w.run(1min);
  all->require(all->came_back > 0, "no memory came back");
}

}  // namespace cordma::test
