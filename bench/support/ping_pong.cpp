#include "ping_pong.hpp"

#include <cordma/io/wait_until.hpp>

#include <algorithm>

namespace bench::ping_pong {
namespace {

using cordma::task;

// An order says who, what and how.
constexpr unsigned code(bool is_ours, ball what, noticing how) {
  return unsigned(is_ours) << 8 | unsigned(what) << 4 | unsigned(how);
}

ibv_wr_opcode opcode_of(ball what) {
  switch (what) {
    case ball::send: return IBV_WR_SEND;
    case ball::write_with_imm: return IBV_WR_RDMA_WRITE_WITH_IMM;
    default: return IBV_WR_RDMA_WRITE;
  }
}

/// The byte that comes next, here and from there.
std::uint8_t next(link_end& end) { return ++end.written; }

void raw_hit(link_end& end, raw_side& side, ball what) {
  if (what == ball::write) end.number_outbox(next(end));
  side.post_seldom_signaled(end.raw_request(opcode_of(what)));
}

void raw_await(link_end& end, raw_side& side, ball what, std::uint8_t number) {
  if (what == ball::write) {
    // Some devices work in the program's polls.
    while (end.arrived() != number) side.poll();
    return;
  }
  side.await_message();
}

void raw_play(link_end& end, ball what, noticing how, std::uint64_t n, latencies* to) {
  const bool begins = to != nullptr;
  raw_side& side = end.raw(how);
  for (; n > 0; --n) {
    if (begins) raw_hit(end, side, what);
    // The end that answers waits for the number that it will send back.
    raw_await(end, side, what, begins ? end.written : std::uint8_t(end.written + 1));
    if (!begins) raw_hit(end, side, what);
    if (what != ball::write) side.post_receive(end.raw_receive());
    if (begins) to->lap();
  }
}

/// A hit needs no CQE: the answer tells of its end.
constexpr cordma::request_flags unsignaled{.signaled = false};

template <class Request>
task<> play_messages(link_end& end, noticing how, std::uint64_t n, latencies* to, Request request) {
  our_side& side = end.ours(how);
  for (; n > 0; --n) {
    if (to != nullptr) static_cast<void>(side.qp.post(request));
    static_cast<void>(co_await side.qp.next_message());
    if (to == nullptr) static_cast<void>(side.qp.post(request));
    side.qp.post_recv(end.inbox());
    if (to != nullptr) to->lap();
  }
}

task<> play_writes(link_end& end, noticing how, std::uint64_t n, latencies* to) {
  our_side& side = end.ours(how);
  for (bool begins = to != nullptr; n > 0; --n) {
    for (const bool hits : {begins, !begins}) {
      if (hits) {
        end.number_outbox(next(end));
        static_cast<void>(side.qp.post(cordma::write(end.outbox(), end.there(), unsignaled)));
        continue;
      }
      const std::uint8_t number = begins ? end.written : std::uint8_t(end.written + 1);
      co_await cordma::wait_until(side.executor,
                                  [&end, number] { return end.arrived() == number; });
    }
    if (begins) to->lap();
  }
}

task<> play(link_end& end, ball what, noticing how, std::uint64_t n, latencies* to) {
  switch (what) {
    case ball::send: return play_messages(end, how, n, to, cordma::send(end.outbox(), unsignaled));
    case ball::write_with_imm:
      return play_messages(end, how, n, to,
                           cordma::write_with_imm(end.outbox(), end.there(), 0, unsignaled));
    default: return play_writes(end, how, n, to);
  }
}

task<> play_window(link_end& end, noticing how, std::uint64_t n, std::uint64_t window) {
  our_side& side = end.ours(how);
  const auto hit = [&] { static_cast<void>(side.qp.post(cordma::send(end.outbox(), unsignaled))); };
  for (std::uint64_t i = 0; i < std::min(n, window); ++i) hit();
  for (; n > 0; --n) {
    static_cast<void>(co_await side.qp.next_message());
    side.qp.post_recv(end.inbox());
    if (n > window) hit();
  }
}

}  // namespace

void raw(two_processes& both, ball what, noticing how, latencies& to) {
  both.order(code(false, what, how), to.round());
  to.start();
  raw_play(both.here(), what, how, to.round(), &to);
}

void order_ours(two_processes& both, ball what, noticing how, std::uint64_t n) {
  both.order(code(true, what, how), n);
}

void ours(two_processes& both, ball what, noticing how, latencies& to) {
  order_ours(both, what, how, to.round());
  to.start();
  both.here().ours(how).executor.run(play(both.here(), what, how, to.round(), &to));
}

task<> once(link_end& here, ball what, noticing how, latencies& to) {
  to.start();
  co_await play(here, what, how, 1, &to);
}

void raw_window(two_processes& both, noticing how, std::uint64_t n, std::uint64_t window) {
  both.order(code(false, ball::send, how), n);
  link_end& here = both.here();
  raw_side& side = here.raw(how);
  const auto hit = [&] { side.post_seldom_signaled(here.raw_request(IBV_WR_SEND)); };
  for (std::uint64_t i = 0; i < std::min(n, window); ++i) hit();
  for (; n > 0; --n) {
    side.await_message();
    side.post_receive(here.raw_receive());
    if (n > window) hit();
  }
}

void our_window(two_processes& both, noticing how, std::uint64_t n, std::uint64_t window) {
  order_ours(both, ball::send, how, n);
  both.here().ours(how).executor.run(play_window(both.here(), how, n, window));
}

void serve(link_end& there, unsigned what, std::uint64_t n) {
  const auto hit_by = ball(what >> 4 & 0xf);
  const auto how = noticing(what & 0xf);
  if ((what >> 8) == 0) {
    raw_play(there, hit_by, how, n, nullptr);
  } else {
    there.ours(how).executor.run(play(there, hit_by, how, n, nullptr));
  }
}

}  // namespace bench::ping_pong
