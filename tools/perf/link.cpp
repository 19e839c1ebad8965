#include "link.hpp"

#include "one_sided.hpp"
#include "request/queue_pair.hpp"
#include "server_side.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace perf {
namespace {

/// The client's receives for the server's messages with credits. The server sends a third such
/// message only when it has got more than half of the messages that the first two are for.
constexpr unsigned credit_receives = 4;
/// The deadline of a call; the longest calls take seconds where memory is slow.
constexpr std::chrono::minutes call_deadline{1};

void check_length(std::size_t got, std::uint64_t wanted) {
  if (got == wanted) return;
  throw std::runtime_error{"an echo of " + std::to_string(got) + " bytes, to " +
                           std::to_string(wanted)};
}

}  // namespace

cordma::task<std::unique_ptr<link>> link::connect(cordma::runtime& rt, job what,
                                                  cordma::endpoint server) {
  cordma::connection conn = co_await rt.connect(std::move(server), connection_options(what));
  co_return std::make_unique<link>(rt, what, std::move(conn));
}

link::link(cordma::runtime& rt, const job& what, cordma::connection conn)
    : rt_{rt},
      what_{what},
      qpn_{conn.verbs().num()},
      driver_{conn.qp().driver()},
      memory_{what.is_bidirectional ? shared_memory(rt, what)
                                    : rt.memory().allocate_zeroed(slots(what) * what.size_bytes)},
      credits_{receives(what)} {
  if (what.op == operation::rpc) {
    caller_ = cordma::rpc::client{std::move(conn),
                                  {.stream = stream_options(what), .call_timeout = call_deadline}};
  } else if (what.op == operation::stream) {
    stream_ = cordma::message_stream{std::move(conn), stream_options(what)};
  } else {
    conn_ = std::move(conn);
    if (what.op == operation::xrc) {
      greeting_ = rt.memory().allocate_zeroed(xrc_route::greeting_bytes);
      conn_.post_recv(greeting_.slice());
    }
    for (unsigned i = 0; i < credit_receives; ++i) conn_.post_recv(memory_.first(job::size_min));
  }
}

void link::learn(const remote_end& there) {
  if (uses_datagrams(what_.op)) datagrams_ = std::make_unique<datagram_end>(rt_, what_, there);
  if (is_echo(what_.op) || what_.op == operation::xrc) return;
  remote_ = cordma::remote_mr_slice::decode(there.memory);
  if (remote_.size_bytes() < memory_.size_bytes()) {
    throw std::runtime_error{"the server lends " + std::to_string(remote_.size_bytes()) +
                             " bytes for a connection, it takes " +
                             std::to_string(memory_.size_bytes())};
  }
}

cordma::task<> link::begin_reverse() {
  if (!what_.is_bidirectional) co_return;
  const auto named = memory_.remote_slice().encode();
  cordma::local_mr words = rt_.memory().allocate_zeroed(named.size());
  std::ranges::copy(named, words.bytes().begin());
  co_await conn_.send(words.slice());
}

cordma::task<> link::end_reverse() {
  if (!what_.is_bidirectional) co_return;
  if (what_.is_endless) co_await conn_.send(cordma::const_local_mr_slice{});
  static_cast<void>(co_await conn_.next_message());
}

cordma::local_mr_slice link::slot(std::uint32_t worker) {
  return memory_.slice(worker % slots(what_) * what_.size_bytes, what_.size_bytes);
}
cordma::remote_mr_slice link::remote_slot(std::uint32_t worker) const {
  return remote_.slice(worker % slots(what_) * what_.size_bytes, what_.size_bytes);
}

cordma::task<> link::run(meter& m) {
  if (datagrams_ != nullptr) {
    co_await datagrams_->prepare();
    static_cast<void>(co_await cordma::when_any(run_workers(m), datagrams_->watch(m)));
    co_return;
  }
  if (!uses_receives(what_.op)) co_return co_await run_workers(m);
  if (what_.op == operation::xrc && !route_.initiator)
    route_ = co_await connect_xrc(rt_, what_, conn_);
  // Credits come for ever: the workers are done first, or the connection has ended.
  static_cast<void>(co_await cordma::when_any(run_workers(m), take_credits()));
}

cordma::task<> link::run_workers(meter& m) {
  co_await cordma::with_scope([&](cordma::scope& workers) -> cordma::task<> {
    for (std::uint32_t i = 0; i < what_.depth; ++i) workers.spawn(run_worker(m, i));
    co_return;
  });
}

cordma::task<> link::run_worker(meter& m, std::uint32_t worker) {
  const cordma::local_mr_slice here = slot(worker);
  if (datagrams_ != nullptr) return datagrams_->exchange_each(m, here);
  if (is_echo(what_.op)) {
    return what_.op == operation::rpc ? call_each(m, worker) : exchange_each(m, worker);
  }
  if (what_.op == operation::xrc) return send_each(m, worker);
  if (uses_receives(what_.op)) return send_each(m, worker);
  return repeat_one_sided(conn_, what_.op, m, here, remote_slot(worker));
}

cordma::task<> link::send_each(meter& m, std::uint32_t worker) {
  const cordma::local_mr_slice here = slot(worker);
  const bool is_write = over_rc(what_.op) == operation::write_imm;
  const cordma::remote_mr_slice there = is_write ? remote_slot(worker) : cordma::remote_mr_slice{};
  clock::time_point start = clock::now();
  while (m.takes_another(start)) {
    while (m.is_early(start)) co_await cordma::sleep_until(m.next_wake(start));
    if (!m.begins(start)) break;
    co_await credits_.acquire();
    if (what_.op == operation::xrc) {
      co_await route_.initiator.to(route_.inbox).send(here);
    } else if (!is_write) {
      co_await conn_.send(here);
    } else {
      co_await conn_.write_with_imm(here, there, worker);
    }
    start = m.record(start);
  }
}

cordma::task<> link::take_credits() {
  if (is_unreliable(what_.op)) co_return co_await take_late_credits();
  for (;;) {
    const cordma::message m = co_await conn_.next_message();
    conn_.post_recv(m.slices);
    credits_.release(m.immediate.value_or(0));
  }
}

/// Over UC a message may be lost, and with it a credit. After a pause nothing is under way.
cordma::task<> link::take_late_credits() {
  const std::size_t all = receives(what_);
  for (;;) {
    auto told = co_await cordma::as_result(cordma::with_timeout(conn_.next_message(), lost_after));
    if (told.is_cancelled()) throw cordma::cancelled{};
    const bool is_late = told.has_failure() && told.failure().code == cordma::errc::timed_out;
    if (told.has_failure() && !is_late) throw cordma::error{told.failure()};
    const std::size_t missing = all - std::min(all, credits_.available());
    if (!is_late) conn_.post_recv(told->slices);
    credits_.release(is_late ? missing
                             : std::min<std::size_t>(missing, told->immediate.value_or(0)));
  }
}

cordma::task<> link::call_each(meter& m, std::uint32_t worker) {
  const bytes said = slot(worker).bytes();
  clock::time_point start = clock::now();
  while (m.takes_another(start)) {
    while (m.is_early(start)) co_await cordma::sleep_until(m.next_wake(start));
    if (!m.begins(start)) break;
    const auto reply = co_await caller_.call<echo>(said);
    check_length(reply->size(), said.size());
    start = m.record(start);
  }
}

/// Answers come in the order of the messages, and the waiting workers take them in that order. Long
/// answers may come in another order, but all have one length.
cordma::task<> link::exchange_each(meter& m, std::uint32_t worker) {
  const cordma::const_local_mr_slice said = slot(worker);
  clock::time_point start = clock::now();
  while (m.takes_another(start)) {
    while (m.is_early(start)) co_await cordma::sleep_until(m.next_wake(start));
    if (!m.begins(start)) break;
    co_await stream_.send(said);
    const cordma::stream_message answer = co_await stream_.receive();
    check_length(answer.size_bytes(), said.size_bytes());
    start = m.record(start);
  }
}

cordma::task<> link::close() {
  if (route_.initiator) co_await route_.initiator.close();
  if (caller_) {
    co_await caller_.close();
  } else if (stream_) {
    co_await stream_.close();
  } else {
    co_await conn_.close();
  }
}

}  // namespace perf
