#include <cordma/runtime/runtime.hpp>

#include "connection/handshake.hpp"
#include "request/queue_pair.hpp"
#include "support/child.hpp"
#include "support/connected_pair.hpp"
#include "support/held.hpp"
#include "support/leaks.hpp"
#include "support/until.hpp"
#include "support/verbs_faults.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::connected_pair;
using test::held;
using test::held_by;
using test::nothing;

TEST_CASE("a device that is not there is an error that lists what is", "[runtime]") {
  try {
    runtime rt{{.device = "nonesuch0"}};
    FAIL("made");
  } catch (const error& e) {
    CHECK(e.code() == make_error_code(errc::no_device));
    for (const verbs::device_info& d : verbs::list_devices()) {
      CHECK(std::string{e.what()}.find(d.name) != std::string::npos);
    }
  }
}

namespace {

task<std::string> device_of(runtime_options options) {
  co_return std::string{options.device.view()};
}

task<> await_options_in_braces() {
  const std::string named = "a_device_whose_name_would_not_lie_in_a_string_itself";
  std::string name = co_await device_of({.device = named});
  CHECK(name == named);
  name = co_await device_of(runtime_options{.device = named, .cq = {.depth = 8}});
  CHECK(name == named);
}

/// Connects to a server that is named as users name it.
task<> connect_by_text(runtime& rt, listener& acceptor) {
  const std::uint16_t port = acceptor.local_endpoint().port;
  connection one = co_await rt.connect({"127.0.0.1", port});
  connection other = co_await rt.connect("127.0.0.1", port);
  connection last = co_await rt.connect("127.0.0.1:" + std::to_string(port));
  CHECK((one.is_open() && other.is_open() && last.is_open()));
}

}  // namespace

TEST_CASE("options that name a device own nothing, and so are safe in braces in a co_await",
          "[runtime]") {
  cordma::executor executor;
  executor.run(await_options_in_braces());
  CHECK(std::is_trivially_destructible_v<decltype(runtime_options::device)>);
}

TEST_CASE("a server is named by host and port, together or apart", "[runtime][device]") {
  runtime rt{test::on_test_device()};
  listener acceptor = rt.listen();
  rt.run(connect_by_text(rt, acceptor));
  CHECK_THROWS_WITH(rt.connect("127.0.0.1", 65536), Catch::Contains("127.0.0.1:65536"));
}

TEST_CASE("a runtime opens the device it was told, and allocates for it", "[runtime][device]") {
  runtime rt{test::on_test_device()};
  if (!test::device_name().empty()) CHECK(rt.device_name() == test::device_name());
  local_mr mr = rt.memory().allocate_zeroed(8);
  CHECK(mr.size_bytes() == 8);
  CHECK(std::to_integer<int>(mr.bytes()[7]) == 0);
}

TEST_CASE("options above the device's limits are refused, both numbers named",
          "[runtime][device][N9]") {
  runtime_options o;
  unsigned most = 0;
  {
    runtime rt{test::on_test_device()};
    most = rt.context().limits().cqe_max;
  }
  SECTION("cq.depth") {
    o.cq.depth = most + 1;
    CHECK_THROWS_WITH(
        runtime{test::on_test_device(std::move(o))},
        Catch::Contains(std::to_string(most + 1)) && Catch::Contains(std::to_string(most)));
  }
  SECTION("poll_batch") {
    o.cq.poll_batch = 0;
    CHECK_THROWS_WITH(runtime{test::on_test_device(std::move(o))},
                      Catch::Contains("poll_batch 0") && Catch::Contains("64"));
  }
  SECTION("port") {
    o.port = 99;
    runtime rt{test::on_test_device(std::move(o))};
    CHECK_THROWS_WITH(rt.listen(),
                      Catch::Contains("port 99 exceeds the device's " +
                                      std::to_string(rt.context().limits().port_count)));
  }
  SECTION("gid_index") {
    o.gid_index = 1'000'000;
    runtime rt{test::on_test_device(std::move(o))};
    CHECK_THROWS_WITH(rt.listen(), Catch::Contains("gid_index 1000000 is not between 0 and "));
  }
}

TEST_CASE("connections work in every completion mode that needs no polling by hand",
          "[runtime][device]") {
  const auto mode =
      GENERATE(completion_mode::event, completion_mode::busy, completion_mode::adaptive);
  connected_pair p{{.cq = {.mode = mode}}};
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(64);
  auto [m, sent] =
      p.rt.run(when_all(p.server.recv(memory.slice(0, 8)), p.client.send(memory.slice(8, 8))));
  CHECK(m.size_bytes == 8);
}

TEST_CASE("in manual mode nothing completes before poll", "[runtime][device][E5]") {
  connected_pair p{{.cq = {.mode = completion_mode::manual}}};
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(64);
  auto handle = p.client.post(write(memory.slice(0, 8), memory.remote_slice().slice(8, 8)));
  p.rt.run(p.rt.executor().sleep_for(20ms));
  CHECK_FALSE(handle.has_ended());
  auto poll = [&]() -> task<> {
    while (p.rt.poll() == 0) co_await sleep_for(1ms);
  };
  p.rt.run(poll());
  CHECK(handle.has_ended());
  CHECK(p.rt.run(std::move(handle)) == 8);
}

TEST_CASE("a runtime finishes the closing of what was dropped after its last run",
          "[runtime][device][C3]") {
  const std::string before = test::holdings();
  for (int i = 0; i < 5; ++i) {
    connected_pair p;
    local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(4096);
    for (int n = 0; n < 10; ++n) p.server.post_recv(memory.slice(0, 8));
    for (int n = 0; n < 20; ++n) {
      static_cast<void>(p.client.post(send(memory.slice(8, 8))));
    }
  }
  CHECK(test::holdings() == before);
}

TEST_CASE("a runtime that fails at any verbs call leaves nothing behind", "[runtime][device][C5]") {
  const auto make = [] { const runtime rt{test::on_test_device()}; };
  const std::string before = test::holdings();
  verbs_faults::fail_call(0, 0);
  make();
  const unsigned steps = verbs_faults::calls_made();
  REQUIRE(steps >= 4);  // Device, protection domain, channel, queue.
  CHECK(test::holdings() == before);
  for (unsigned k = 1; k <= steps; ++k) {
    verbs_faults::fail_call(k, ENOMEM);
    CHECK_THROWS_AS(make(), error);
    INFO("call " << k << ": " << verbs_faults::failed_call());
    CHECK(test::holdings() == before);
  }
  verbs_faults::fail_call(0, 0);
  make();
}

TEST_CASE("memory beyond the memlock limit is an error that names it, and the connection goes on",
          "[runtime][connection][device][M5]") {
  const std::string text = test::text_of_child([]() -> std::string {
    if (!test::limit_memlock(4u << 20)) return "cannot drop capabilities";
    std::string said;
    try {
      connected_pair p;
      // soft0 locks no memory. The allocator asks twice: before it refuses it trims.
      if (test::is_soft()) verbs_faults::fail_call(1, ENOMEM, 2);
      try {
        static_cast<void>(p.rt.memory().allocate_zeroed(64u << 20));
      } catch (const error& e) {
        said = e.what();
      }
      local_mr memory = p.rt.memory().allocate_zeroed(64);
      const auto [m, sent] =
          p.rt.run(when_all(p.server.recv(memory.slice(0, 8)), p.client.send(memory.slice(8, 8))));
      return said + (m.size_bytes == sent ? "; and it goes on" : "; and that was it");
    } catch (const error& e) {
      return said + "; then " + e.what();
    }
  });
  CHECK_THAT(text, Catch::Contains("KiB: RLIMIT_MEMLOCK is 4096 KiB") &&
                       Catch::Contains("; and it goes on"));
}

namespace {

/// Makes a runtime with so many descriptors left, and says why it could not be made.
std::string runtime_with(rlim_t descriptors_left) {
  return test::text_of_child([descriptors_left]() -> std::string {
    const int next = ::dup(0);
    ::close(next);
    const rlimit limit{rlim_t(next) + descriptors_left, rlim_t(next) + descriptors_left};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return "no limit";
    try {
      runtime rt{test::on_test_device()};
      return "made";
    } catch (const error& e) {
      return e.what();
    }
  });
}

}  // namespace

TEST_CASE("a runtime that finds no descriptor left says so, whichever it is that lacks",
          "[runtime][device][N9]") {
  std::string said;
  for (rlim_t left = 0; left < 40 && said != "made"; ++left) {
    said = runtime_with(left);
    INFO(left << " left: " << said);
    CHECK((said == "made" || said.find("ulimit -n") != said.npos));
  }
  CHECK(said == "made");
}

namespace {

/// Keeps what comes to one connection in buffers of the runtime's.
struct keeper final : message_handler {
  void on_receive(std::uint32_t number, const ibv_wc&) noexcept override { kept.push_back(number); }
  bool on_room() noexcept override { return false; }
  void on_idle_awaited() noexcept override {}
  void on_failure() noexcept override {}
  void on_gone() noexcept override {}
  std::vector<std::uint32_t> kept;
};

/// Connections whose servers' ends share receives. A receiver that is not ready breaks them at
/// once.
struct pooled_connections {
  explicit pooled_connections(const shared_receives_options& options, runtime_options of_rt = {})
      : rt{test::on_test_device(std::move(of_rt))},
        pool{rt.share_receives(options)},
        acceptor{rt.listen({}, {}, with_pool())} {}
  static connection_options never_not_ready() {
    connection_options o;
    o.rnr_retry = 0;
    return o;
  }
  connection_options with_pool() {
    connection_options o = never_not_ready();
    o.receives_from = &pool;
    return o;
  }
  task<> add() {
    auto [c, s] = co_await when_all(rt.connect(acceptor.local_endpoint(), never_not_ready()),
                                    acceptor.accept());
    keepers.push_back(std::make_unique<keeper>());
    s.qp().hand_messages_to(*keepers.back());
    clients.push_back(std::move(c));
    servers.push_back(std::move(s));
  }
  task<> close_all() {
    for (std::size_t n = 0; n < clients.size(); ++n)
      co_await when_all(clients[n].close(), servers[n].close());
  }
  void give_back(keeper& k) {
    for (const std::uint32_t number : k.kept) pool.give_back(number);
    k.kept.clear();
  }

  std::vector<std::unique_ptr<keeper>> keepers;  // Told when the runtime ends what was dropped.
  runtime rt;
  shared_receives& pool;
  listener acceptor;
  std::vector<connection> clients;
  std::vector<connection> servers;
};

}  // namespace

TEST_CASE("connections share the runtime's receive buffers, and leave them when they close",
          "[runtime][device]") {
  pooled_connections p{{.buffers = 24, .buffer_bytes = 64, .share_min = 8}};
  for (int round = 0; round < 3; ++round) {
    for (int n = 0; n < 3; ++n) p.rt.run(p.add());
    CHECK(p.servers[0].local_hello().recv_wr_max == 8);
    CHECK(held_by(p.pool) == held{.receive_credits = 24});
    local_mr memory = p.rt.memory().allocate_zeroed(64);
    for (int n = 0; n < 8; ++n)
      for (connection& c : p.clients) p.rt.run(c.send(memory.slice()));
    const auto has_all = [](const auto& k) { return k->kept.size() == 8; };
    p.rt.run(test::until(p.rt.executor(), [&] { return std::ranges::all_of(p.keepers, has_all); }));
    p.give_back(*p.keepers[1]);

    p.rt.run(p.close_all());
    p.clients.clear();
    p.servers.clear();
    p.rt.run(test::until(p.rt.executor(), [&] { return p.pool.queue_pairs() == 0; }));
    CHECK(held_by(p.pool) == held{.receive_credits = 16});
    for (const auto& k : p.keepers) p.give_back(*k);
    CHECK(held_by(p.pool) == nothing);
    p.keepers.clear();
  }
}

TEST_CASE("a connection that finds no shared buffers left is refused, and the peer is told why",
          "[runtime][device]") {
  pooled_connections p{{.buffers = 20, .buffer_bytes = 64, .share_min = 8}};
  p.rt.run(p.add());
  p.rt.run(p.add());
  CHECK_THROWS_WITH(p.rt.run(p.rt.connect(p.acceptor.local_endpoint())),
                    Catch::Contains("16 of 20 shared buffers"));
  CHECK_THROWS_WITH(p.rt.run(p.rt.connect(p.acceptor.local_endpoint(), p.with_pool())),
                    Catch::Contains("16 of 20 shared buffers"));
  CHECK(held_by(p.pool) == held{.receive_credits = 16});
  p.servers.pop_back();
  p.rt.run(test::until(p.rt.executor(), [&] { return p.pool.queue_pairs() == 1; }));
  p.rt.run(p.add());
}

TEST_CASE("a connection with a protection domain of its own has no shared receives",
          "[runtime][device]") {
  pooled_connections p{{.buffers = 20, .buffer_bytes = 64, .share_min = 8}};
  connection_options o = p.with_pool();
  o.agent.lending.isolation_max = isolation::shared_key;
  o.agent.lending.isolation_min = isolation::shared_key;
  const auto outcome = p.rt.run(as_result(p.rt.connect(p.acceptor.local_endpoint(), o)));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == errc::wrong_protection_domain);
}

TEST_CASE("completion queues have room for a pool's receives besides the connections' own requests",
          "[runtime][device]") {
  runtime_options options;
  options.cq.depth = 1024;
  pooled_connections p{{.buffers = 512, .buffer_bytes = 64, .share_min = 8}, std::move(options)};
  for (int n = 0; n < 4; ++n) p.rt.run(p.add());
  CHECK(p.pool.queue_pairs() == 4);
  CHECK(p.rt.completion_queue_count() > 1);
  CHECK(p.rt.completion_queue_count() <= 8);
}

TEST_CASE("what a connect or a listen says of its options leaves the runtime's others",
          "[runtime][device]") {
  runtime_options options;
  options.connections.rd_atomic_max = 1;
  options.connections.agent.enabled = false;
  runtime rt{test::on_test_device(std::move(options))};
  listener acceptor = rt.listen({}, {}, {.close_timeout = 1s});
  const endpoint where = acceptor.local_endpoint();
  auto [c, s] = rt.run(when_all(rt.connect(where, {.connect_timeout = 4s}), acceptor.accept()));
  CHECK_FALSE(c.has_agent());
  CHECK_FALSE(s.has_agent());
  CHECK(c.agreement().rts.rd_atomic_max == 1);
  CHECK(c.agreement().rtr.dest_rd_atomic_max == 1);
}
