#include <cordma/runtime/runtime.hpp>

#include "support/connected_pair.hpp"
#include "support/held.hpp"
#include "support/leaks.hpp"
#include "support/placed_messages.hpp"
#include "support/skip.hpp"
#include "support/verbs_faults.hpp"
#include "support/xrc.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/datagram/datagram_socket.hpp>

#include <catch2/catch.hpp>

#include <algorithm>

using namespace cordma;
using test::connected_pair;
using test::held_by;
using test::nothing;
using queue_domain = verbs::protection_domain::queue_domain;

namespace {

/// While alive, devices that are opened have no thread domains.
struct no_thread_domains {
  no_thread_domains() { verbs_faults::hide_thread_domains(true); }
  ~no_thread_domains() { verbs_faults::hide_thread_domains(false); }
  no_thread_domains(const no_thread_domains&) = delete;
};

runtime_options with_thread_domain() {
  runtime_options options;
  options.thread_domain = true;
  return options;
}

connection_options lends() {
  connection_options options;
  options.agent.lending.bytes_max = 1 << 20;
  return options;
}

const ibv_pd* domain_of(connection& conn) { return conn.verbs().native_handle()->pd; }

/// A message, a WRITE, and memory that is lent through a window.
void check_traffic(connected_pair& p) {
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(64);
  const local_mr from = p.rt.memory().allocate_zeroed(8);
  const auto [message, sent] =
      p.rt.run(when_all(p.server.recv(memory.slice(0, 8)), p.client.send(from)));
  CHECK(message.size_bytes == sent);
  CHECK(p.rt.run(p.client.write(from, memory.remote_slice().slice(8, 8))) == 8);
  remote_mr borrowed = p.rt.run(p.client.request_remote_mr(64));
  CHECK(p.rt.run(p.client.write(from, borrowed.first(8))) == 8);
  p.rt.run(p.client.send_remote_mr(std::move(borrowed)));
}

}  // namespace

TEST_CASE("queues of a runtime with a thread domain are made there, and memory is not",
          "[runtime][device]") {
  const unsigned before = verbs_faults::queues_in_domains();
  connected_pair p{with_thread_domain(), lends(), lends()};
  verbs::protection_domain& pd = p.rt.protection_domain();
  shared_receives& pool = p.rt.share_receives();
  const local_mr memory = p.rt.memory().allocate_zeroed(64);
  CHECK(memory.slice().block()->pd() == pd.native_handle());
  CHECK(domain_of(p.client) == pd.queues_handle());
  CHECK(domain_of(p.server) == pd.queues_handle());
  CHECK(pool.verbs().native_handle()->pd == pd.queues_handle());
  if (test::is_rxe()) {
    CHECK(pd.queues() == queue_domain::no_thread_domain);
    CHECK(pd.queues_handle() == pd.native_handle());
  } else {
    CHECK(pd.queues() == queue_domain::thread_domain);
    CHECK(pd.queues_handle() != pd.native_handle());
    CHECK(verbs_faults::queues_in_domains() - before == p.rt.completion_queue_count());
  }
  check_traffic(p);
}

TEST_CASE("a runtime with a thread domain receives messages into memory that the program chooses",
          "[runtime][device]") {
  namespace streams = test::streams;
  streams::stream_pair p{streams::smallest, streams::smallest, with_thread_domain()};
  local_mr memory = p.rt.memory().allocate_zeroed(streams::large_bytes);
  for (const std::size_t size : {std::size_t{64}, streams::large_bytes}) {
    const auto sent = streams::seeded_bytes(size, unsigned(size));
    streams::choice where{memory.slice()};
    p.rt.run(when_all(p.a.send(sent), streams::receive_at(p.b, where)));
    CHECK(std::ranges::equal(memory.bytes().first(size), sent));
  }
}

TEST_CASE("a runtime with a thread domain sends and receives datagrams", "[runtime][device]") {
  runtime rt{test::on_test_device(with_thread_domain())};
  datagram_socket from = rt.open_datagram();
  datagram_socket to = rt.open_datagram();
  local_mr into = rt.memory().allocate_zeroed(to.payload_max());
  local_mr text = rt.memory().allocate_zeroed(5);
  std::ranges::copy(test::bytes_of("hello"), text.bytes().begin());
  to.post_recv(into.slice());
  CHECK(rt.run(from.send_to(to.address(), text)) == 5);
  const datagram came = rt.run(to.next_datagram());
  CHECK(test::text_of(came.payload().bytes()) == "hello");
}

TEST_CASE("a pool of an XRC domain is made in the thread domain, too", "[runtime][device]") {
  CORDMA_NEED_XRC();
  runtime rt{test::on_test_device(with_thread_domain())};
  test::xrc_host host{rt};
  CHECK(host.pool.verbs().native_handle()->pd == rt.protection_domain().queues_handle());
  auto [from, to] = host.connect();
  const local_mr text = rt.memory().allocate_zeroed(4);
  CHECK(rt.run(from.to(host.pool.num()).send(text.slice())) == 4);
  CHECK(test::word_of(rt.run(host.pool.next_message())) == 0);
}

TEST_CASE("a runtime whose device has no thread domains says so, and works", "[runtime][device]") {
  const no_thread_domains hidden;
  const unsigned before = verbs_faults::queues_in_domains();
  connected_pair p{with_thread_domain(), lends(), lends()};
  const verbs::protection_domain& pd = p.rt.protection_domain();
  CHECK(pd.queues() == queue_domain::no_thread_domain);
  CHECK(domain_of(p.client) == pd.native_handle());
  CHECK(verbs_faults::queues_in_domains() == before);
  check_traffic(p);
}

TEST_CASE("a runtime makes no thread domain unless it is asked for", "[runtime][device]") {
  const unsigned before = verbs_faults::queues_in_domains();
  connected_pair p;
  const verbs::protection_domain& pd = p.rt.protection_domain();
  CHECK(pd.queues() == queue_domain::itself);
  CHECK(domain_of(p.client) == pd.native_handle());
  CHECK(verbs_faults::queues_in_domains() == before);
}

TEST_CASE("a connection that lends by keys of its own domain has a thread domain, too",
          "[runtime][device]") {
  connection_options by_key = lends();
  by_key.agent.lending.isolation_min = isolation::shared_key;
  by_key.agent.lending.isolation_max = isolation::shared_key;
  connected_pair p{with_thread_domain(), by_key, by_key};
  const verbs::protection_domain& pd = p.rt.protection_domain();
  const ibv_pd* const own = domain_of(p.client);
  CHECK(own != pd.native_handle());
  CHECK(own != pd.queues_handle());
  remote_mr borrowed = p.rt.run(p.client.request_remote_mr(64));
  const local_mr from = p.client.memory().allocate_zeroed(8);
  CHECK(p.rt.run(p.client.write(from, borrowed.first(8))) == 8);
}

TEST_CASE("a runtime with a thread domain that fails at any verbs call leaves nothing behind",
          "[runtime][device]") {
  const auto make = [] { const runtime rt{test::on_test_device(with_thread_domain())}; };
  const std::string before = test::holdings();
  verbs_faults::fail_call(0, 0);
  make();
  const unsigned steps = verbs_faults::calls_made();
  CHECK(test::holdings() == before);
  for (unsigned k = 1; k <= steps; ++k) {
    verbs_faults::fail_call(k, ENOMEM);
    CHECK_THROWS_AS(make(), error);
    INFO("call " << k << ": " << verbs_faults::failed_call());
    CHECK(test::holdings() == before);
  }
  verbs_faults::fail_call(0, 0);
}
