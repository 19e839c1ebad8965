#include "attempt_memory.hpp"
#include "tries.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/queue/shared_receives.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <tuple>

namespace doctor {
namespace {

using cordma::connection;
using cordma::connection_changes;
using cordma::local_mr_slice;
using cordma::runtime;
using cordma::task;
using cordma::verbs::queue_pair_type;
using clock = std::chrono::steady_clock;

/// Changes for a connection with no queue pair but that of `transport`: the agents' one is RC.
connection_changes only(queue_pair_type transport) {
  connection_changes changes;
  changes.transport = transport;
  changes.agent = cordma::agent_options{.enabled = false};
  return changes;
}

/// The side that connects, and the one that accepts.
using both_sides = std::tuple<connection, connection>;

task<both_sides> connected(runtime& rt, connection_changes active, connection_changes passive) {
  cordma::listener listener = rt.listen({}, {}, passive);
  co_return co_await cordma::when_all(rt.connect(listener.local_endpoint(), active),
                                      listener.accept());
}

task<std::string> send_over_uc(runtime& rt) {
  buffers b{rt};
  auto [active, passive] =
      co_await connected(rt, only(queue_pair_type::uc), only(queue_pair_type::uc));
  b.post_receives(passive);  // Before the SEND: a message without a receive is lost.
  const local_mr_slice said = b.out.first(message_bytes);
  fill(said.bytes(), message_seed);
  const clock::time_point start = clock::now();
  co_await active.send(said);
  const cordma::message got = co_await passive.next_message();
  check_equal(got.size_bytes, message_bytes, "the length of a SEND over UC");
  check_filled(got.payload().bytes(), message_seed, "SEND over UC");
  co_return took(start);
}

/// The SEND behind the WRITE tells that its bytes are there: UC keeps the order.
task<std::string> write_over_uc(runtime& rt) {
  buffers b{rt};
  auto [active, passive] =
      co_await connected(rt, only(queue_pair_type::uc), only(queue_pair_type::uc));
  b.post_receives(passive);
  const local_mr_slice said = b.out.first(message_bytes);
  fill(said.bytes(), message_seed);
  const clock::time_point start = clock::now();
  co_await active.write(said, b.area.remote_slice().slice(0, message_bytes));
  co_await active.send(said);
  static_cast<void>(co_await passive.next_message());
  check_filled(b.area.first(message_bytes).bytes(), message_seed, "WRITE over UC");
  co_return took(start);
}

/// A WRITE and a SEND from an initiator to a pool, by a target.
task<std::string> reach_pool(runtime& rt) {
  if (!rt.context().limits().xrc) throw not_there{"xrc: the device has none"};
  cordma::verbs::xrc_domain& domain = rt.open_xrc_domain();
  cordma::shared_receives& pool = rt.share_receives({.buffers = receives,
                                                     .buffer_bytes = message_bytes,
                                                     .share_min = 1,
                                                     .for_messages = true,
                                                     .xrc_domain = &domain});
  connection_changes passive = only(queue_pair_type::xrc_target);
  passive.xrc_domain = &domain;
  buffers b{rt};
  auto [initiator, target] = co_await connected(rt, only(queue_pair_type::xrc_initiator), passive);
  const local_mr_slice said = b.out.first(message_bytes);
  fill(said.bytes(), message_seed);
  const clock::time_point start = clock::now();
  co_await initiator.to(pool.num()).write(said, b.area.remote_slice().slice(0, message_bytes));
  check_filled(b.area.first(message_bytes).bytes(), message_seed, "WRITE over XRC");
  co_await initiator.to(pool.num()).send(said);
  const cordma::shared_receives::message got = co_await pool.next_message();
  check_equal(got.size_bytes(), message_bytes, "the length of a SEND over XRC");
  check_filled(got.payload().bytes(), message_seed, "SEND over XRC");
  co_return "to a pool, " + took(start);
}

}  // namespace

void try_uc(runtime& rt, report& r) {
  const std::string why = "a loopback over UC, which only connections that ask for it use";
  const if_it_fails otherwise{
      severity::warning,
      "leave connection_options::transport at RC, if the device makes no UC queue pairs; else see "
      "gid, mtu, memlock and cgroup"};
  add_outcome(r, "try.uc.send", outcome_in_time(rt, send_over_uc(rt), attempt_time_max), why,
              otherwise);
  add_outcome(r, "try.uc.write", outcome_in_time(rt, write_over_uc(rt), attempt_time_max), why,
              otherwise);
}

void try_xrc(runtime& rt, report& r) {
  add_outcome(r, "try.xrc", outcome_in_time(rt, reach_pool(rt), attempt_time_max),
              "a loopback over XRC, by which one queue pair reaches all processes of a host",
              {severity::error, "see gid, mtu, memlock and cgroup; sudo dmesg may tell more"});
}

}  // namespace doctor
