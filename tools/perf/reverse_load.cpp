#include "reverse_load.hpp"

#include "meter_limits.hpp"
#include "one_sided.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <stdexcept>
#include <string>

namespace perf {
namespace {

constexpr std::size_t name_bytes = cordma::remote_mr_slice::encoded_bytes;

/// The client's memory, as its first message names it.
cordma::remote_mr_slice memory_in(const cordma::message& m, std::size_t wanted) {
  std::array<std::byte, name_bytes> named{};
  if (m.size_bytes != named.size()) {
    throw std::runtime_error{"the client names its memory in " + std::to_string(m.size_bytes) +
                             " bytes, not " + std::to_string(named.size())};
  }
  std::ranges::copy(m.slices[0].bytes().first(named.size()), named.begin());
  const auto there = cordma::remote_mr_slice::decode(named);
  if (there.size_bytes() < wanted) {
    throw std::runtime_error{"the client lends " + std::to_string(there.size_bytes()) +
                             " bytes, the job takes " + std::to_string(wanted)};
  }
  return there;
}

/// One direction of a connection.
struct direction {
  cordma::connection& conn;
  const job& what;
  cordma::local_mr& memory;
  cordma::remote_mr_slice there{};

  cordma::task<> run(meter& m) {
    co_await cordma::with_scope([&](cordma::scope& workers) -> cordma::task<> {
      for (std::uint32_t i = 0; i < what.depth; ++i) {
        const std::size_t offset = i % slots(what) * what.size_bytes;
        workers.spawn(repeat_one_sided(conn, what.op, m, memory.slice(offset, what.size_bytes),
                                       there.slice(offset, what.size_bytes)));
      }
      co_return;
    });
  }
};

cordma::task<> run_direction(direction& d, const std::atomic<bool>& is_stopped,
                             const reverse_teller& tell_reverse) {
  // All connections have equal parts: the server does not number them.
  meter::limits until = limits_of(d.what, 0, d.what.connections, &is_stopped);
  if (until.pace) until.pace->seed = d.conn.peer_qpn();
  meter m;
  m.begin(warm_up_of(d.what, until));
  co_await d.run(m);
  m.begin(until);
  co_await d.run(m);
  tell_reverse({.latencies = m.latencies(), .began = m.began(), .ended = m.now()});
}

/// Notes the message that ends the operations early. Ends, after that, with the connection.
cordma::task<> watch(cordma::connection& conn, std::atomic<bool>& is_stopped) {
  static_cast<void>(co_await conn.next_message());
  is_stopped.store(true, std::memory_order_relaxed);
  static_cast<void>(co_await conn.next_message());
}

}  // namespace

cordma::task<> serve_both_directions(cordma::runtime& rt, job what, teller tell,
                                     reverse_teller tell_reverse, cordma::connection conn) {
  cordma::local_mr memory = shared_memory(rt, what);
  cordma::local_mr words = rt.memory().allocate_zeroed(2 * name_bytes);
  for (std::size_t i = 0; i < 2; ++i) conn.post_recv(words.slice(i * name_bytes, name_bytes));
  tell({.qpn = conn.peer_qpn(), .memory = memory.remote_slice().encode()});
  direction back{conn, what, memory};
  back.there = memory_in(co_await conn.next_message(), memory.size_bytes());
  std::atomic<bool> is_stopped{false};
  static_cast<void>(co_await cordma::when_any(run_direction(back, is_stopped, tell_reverse),
                                              watch(conn, is_stopped)));
  co_await conn.send(cordma::const_local_mr_slice{});
  co_await wait_for_end(conn);
}

}  // namespace perf
