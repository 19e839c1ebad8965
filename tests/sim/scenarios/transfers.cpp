#include "scenarios.hpp"
#include "support.hpp"

#include <tuple>

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

/// How late an operation with a deadline may end: a host may be paused for 20 ms at a time.
constexpr duration lateness_max = 100ms;
constexpr unsigned lanes = 4;

/// A host whose operations end by themselves, by deadlines, by stops, or are dropped. The other one
/// takes its messages.
struct transferring : cast {
  using cast::cast;
  /// Operations of the longest lanes fill a link.
  const std::size_t lane_bytes = w.random(3) == 0 ? 256 * kib : 64 * kib;
  remote_mr_slice target;
  bool is_ready = false;
  std::array<std::uint64_t, 2> added{};  ///< surely, and at most, to the first word

  /// Tells how the device must not have ended an operation of a lane.
  void require_stop_or_deadline(const std::error_code& code, bool was_cancelled) const {
    require(was_cancelled || code == errc::timed_out || !code, "an operation failed");
  }

  /// Runs an operation that may be stopped by one of several means. Returns true if it succeeded.
  template <class Op>
  task<bool> may_end_early(Op op) {
    const time_point began = w.now();
    switch (w.random(4)) {
      case 0: {
        const duration limit = moment(2ms);
        const auto ended = co_await as_result(with_timeout(std::move(op), limit));
        require(w.now() - began <= limit + lateness_max, "a deadline was not met");
        require(ended.has_value() || w.now() - began >= limit, "a deadline came too early");
        require_stop_or_deadline(code_of(ended), ended.is_cancelled());
        co_return ended.has_value();
      }
      case 1: {
        bool has_ended = false;
        const auto run = [&]() -> task<> {
          static_cast<void>(co_await std::move(op));
          has_ended = true;
        };
        const duration limit = moment(1ms);
        co_await when_any(run(), sleep_for(limit));
        require(has_ended || w.now() - began <= limit + lateness_max, "a stop took too long");
        co_return has_ended;
      }
      default: static_cast<void>(co_await std::move(op)); co_return true;
    }
  }

  /// One-sided operations on a part of the peer's memory that is the lane's own.
  task<> reach(connection& conn, unsigned lane) {
    const const_local_mr registered = registered_pattern(conn.memory());
    const remote_mr_slice own = target.slice(kib + lane * lane_bytes, lane_bytes);
    for (unsigned n = 0; n < 25; ++n) {
      const part now = any_part(w, lane_bytes);
      if (w.random(2) == 0) {
        co_await may_end_early(conn.write(now.of(registered), own));
      } else if (w.random(1) == 0) {
        co_await conn.write(now.of(registered), own);
        local_mr copy = conn.memory().allocate_zeroed(now.length);
        const bool has_read = co_await may_end_early(conn.read(copy, own.first(now.length)));
        if (has_read) require(now.is_in(copy.bytes()), "a READ: other bytes");
      } else if (w.random(1) == 0) {
        const std::uint64_t addend = 1 + w.random(9);
        added[1] += addend;
        const bool has_added = co_await may_end_early(conn.fetch_add(target.first(8), addend));
        if (has_added) added[0] += addend;
      } else {
        // Dropped without a wait, and the memory as well.
        local_mr soon_gone = conn.memory().allocate_uninitialized(now.length);
        std::ranges::copy(now.bytes(), soon_gone.bytes().begin());
        auto dropped = conn.post(write(soon_gone, own));
        if (w.random(1) == 0) co_await sleep_for(moment(100us));
      }
    }
    const part last{lane * kib, lane_bytes};
    co_await conn.write(last.of(registered), own);
    local_mr copy = conn.memory().allocate_zeroed(lane_bytes);
    co_await conn.read(copy, own);
    require(last.is_in(copy.bytes()), "a WRITE was overtaken by one that was posted before");
  }

  task<> send(connection& conn) {
    const const_local_mr registered = registered_pattern(conn.memory());
    std::vector<local_mr> kept;
    for (unsigned n = 0; n < 25; ++n) {
      const part sent = any_part(w, 4 * kib);
      const auto immediate = std::uint32_t(sent.offset);
      if (w.random(1) == 0) {
        co_await may_end_early(conn.send_with_imm(sent.of(registered), immediate));
      } else {
        const std::size_t first = sent.length / 2;
        co_await may_end_early(
            conn.send_with_imm(gather(sent.of(registered).first(first),
                                      registered.slice(sent.offset + first, sent.length - first)),
                               immediate));
      }
    }
  }

  task<> receive(connection& conn) {
    for (;;) {
      const result<message> next = co_await as_result(conn.next_message());
      if (code_of(next) == errc::disconnected) co_return;
      require(next.has_value(), "a receive failed");
      require(is_pattern((*next).payload().bytes(), *(*next).immediate), "a message: other bytes");
      if (w.random(19) == 0) co_await sleep_for(moment(5ms));
      if (conn.is_open()) conn.post_recv((*next).slices);
    }
  }

  /// Adds more often than a queue pair has atomics in flight.
  task<> add(connection& conn) {
    for (unsigned n = 0; n < 30; ++n) {
      ++added[1];
      co_await conn.fetch_add(target.first(8), 1);
      ++added[0];
    }
  }

  /// Limits of the connection that requests wait for.
  [[nodiscard]] connection_changes limits() {
    connection_changes changes = without_heartbeats();
    if (w.random(1) == 0) changes.rd_atomic_max = 1 + std::uint32_t(w.random(3));
    if (w.random(1) == 0) changes.capabilities = {{.send_wr_max = 4u << w.random(3)}};
    return changes;
  }

  task<> live(runtime& rt, unsigned self) {
    if (self == 1) {
      while (!is_ready) co_await sleep_for(100us);
      connection conn = co_await rt.connect(at(0), limits());
      co_await with_scope([&](scope& all) -> task<> {
        for (unsigned lane = 0; lane < lanes; ++lane) all.spawn(reach(conn, lane));
        all.spawn(send(conn));
        if (w.random(1) == 0) all.spawn(add(conn));
        co_return;
      });
      co_await close(conn);
      co_return;
    }
    local_mr memory = reachable_memory(rt).allocate_zeroed(kib + lanes * lane_bytes);
    target = memory.remote_slice();
    connection_changes changes = without_heartbeats();
    changes.preposted = 8;
    listener listening = rt.listen(at(0), {}, changes);
    is_ready = true;
    connection conn = co_await listening.accept();
    co_await receive(conn);
    const std::uint64_t sum = memory.first(8).as<std::uint64_t>()[0];
    require(sum >= added[0] && sum <= added[1], "fetch-and-add: another sum");
  }
};

}  // namespace

void play_transfers(sim::world& w) {
  start_all<transferring>(w, 2);
  w.run(10min);
}

}  // namespace cordma::test
