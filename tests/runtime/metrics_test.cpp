#include <cordma/runtime/metrics.hpp>

#include "support/allocations.hpp"
#include "support/connected_pair.hpp"
#include "support/io_backend.hpp"
#include "support/skip.hpp"
#include "support/until.hpp"

#include <cordma/messages/message_stream.hpp>
#include <cordma/runtime/runtime_group.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::connected_pair;

namespace {

/// Reads metrics as Prometheus does: each line is a comment that we know or
/// `name{label="value",...} number`. Samples stand behind the HELP and TYPE of their family, and no
/// sample comes twice.
class scrape {
 public:
  explicit scrape(const std::string& text) {
    REQUIRE(text.ends_with('\n'));
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      if (line.starts_with("# HELP ")) {
        help(line.substr(7));
      } else if (line.starts_with("# TYPE ")) {
        type(line.substr(7));
      } else {
        sample(line);
      }
    }
  }
  [[nodiscard]] std::uint64_t operator[](const std::string& name) const {
    INFO(name);
    const auto found = samples_.find(name);
    REQUIRE(found != samples_.end());
    return found->second;
  }
  [[nodiscard]] std::size_t size() const { return samples_.size(); }

 private:
  static bool is_name(const std::string& text) {
    constexpr const char* letters =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    return !text.empty() && text.find_first_not_of(letters) == std::string::npos &&
           (text[0] < '0' || text[0] > '9');
  }
  void help(const std::string& rest) {
    family_ = rest.substr(0, rest.find(' '));
    CHECK(is_name(family_));
    CHECK(rest.size() > family_.size() + 1);
    CHECK(types_.count(family_) == 0);  // The lines of a family stand together.
  }
  void type(const std::string& rest) {
    CHECK(rest.substr(0, rest.find(' ')) == family_);
    types_[family_] = rest.substr(family_.size() + 1);
    CHECK((types_[family_] == "counter" || types_[family_] == "gauge"));
    CHECK(family_.ends_with("_total") == (types_[family_] == "counter"));
  }
  void sample(const std::string& line) {
    CHECK(line.substr(0, line.find('{')) == family_);
    CHECK(types_.count(family_) == 1);
    std::size_t at = family_.size();
    do {
      const std::size_t equals = line.find('=', ++at);
      REQUIRE(equals != std::string::npos);
      CHECK(is_name(line.substr(at, equals - at)));
      REQUIRE(line.at(equals + 1) == '"');
      for (at = equals + 2; line.at(at) != '"'; ++at)
        if (line[at] == '\\')
          REQUIRE(std::string{"\\\"n"}.find(line.at(++at)) != std::string::npos);
      ++at;
    } while (line.at(at) == ',');
    REQUIRE(line.substr(at, 2) == "} ");
    const std::string digits = line.substr(at + 2);
    REQUIRE_FALSE(digits.empty());
    CHECK(digits.find_first_not_of("0123456789") == std::string::npos);
    CHECK(samples_.emplace(line.substr(0, at + 1), std::stoull(digits)).second);
  }

  std::string family_;
  std::map<std::string, std::string> types_;
  std::map<std::string, std::uint64_t> samples_;
};

task<> writes(connection& conn, local_mr_slice from, remote_mr_slice to, unsigned count) {
  for (unsigned n = 0; n < count; ++n) co_await conn.write(from, to);
}

std::string sample_of(const runtime& rt, const char* name, const std::string& more = {}) {
  return "cordma_" + std::string{name} + "{device=\"" + std::string{rt.device_name()} + '"' + more +
         '}';
}

}  // namespace

TEST_CASE("a runtime's metrics are what its connections did, those that are gone included",
          "[runtime][device]") {
  connected_pair p;
  const metrics before = p.rt.metrics();
  CHECK(before.device.view() == p.rt.device_name());
  CHECK(before.transfer.of(request_kind::write).posted == 0);
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(128);
  p.rt.run(writes(p.client, memory.slice(0, 64), memory.remote_slice().slice(64, 64), 7));
  const metrics after = p.rt.metrics();
  CHECK(after.transfer.of(request_kind::write).posted == 7);
  CHECK(after.transfer.of(request_kind::write).completed == 7);
  CHECK(after.transfer.of(request_kind::write).in_flight() == 0);
  CHECK(after.completions.completions >= before.completions.completions + 7);
  CHECK(after.completions.polls > after.completions.empty_polls);
  CHECK(after.executor.iterations > before.executor.iterations);
  CHECK(after.executor.ready_resumed > before.executor.ready_resumed);
  CHECK(after.executor.enters > 0);
  CHECK(after.executor.waits <= after.executor.enters);
  CHECK(after.memory.registrations > before.memory.registrations);
  CHECK(after.memory.registered_bytes > before.memory.registered_bytes);
  CHECK(after.memory.registered_bytes ==
        p.rt.memory().counters().registered_bytes +
            p.rt.memory(test::all_access).counters().registered_bytes);
  p.client = {};
  p.server = {};
  p.rt.run(p.rt.executor().sleep_for(1ms));
  CHECK(p.rt.metrics().transfer.of(request_kind::write).completed == 7);
  for (const request_counters& c : p.rt.metrics().transfer.requests) CHECK(c.in_flight() == 0);
}

TEST_CASE("what streams send counts as sends, and their waits for credit as such",
          "[runtime][device]") {
  connected_pair p;
  auto talk = [](connected_pair& of) -> task<> {
    message_stream a{std::move(of.client), {.depth = 8}};
    message_stream b{std::move(of.server), {.depth = 8}};
    const std::array<std::byte, 8> bytes{};
    scope sending{of.rt.executor()};
    // More messages than the peer has room for, before it takes any.
    constexpr unsigned count = 20;
    auto send_all = [](message_stream& s, std::span<const std::byte> what) -> task<> {
      for (unsigned n = 0; n < count; ++n) co_await s.send(what);
    };
    sending.spawn(send_all(a, bytes));
    co_await sleep_for(1ms);
    for (unsigned n = 0; n < count; ++n) static_cast<void>(co_await b.receive());
    co_await sending.join();
    CHECK(a.counters().credit_waits > 0);
    const metrics now = of.rt.metrics();
    CHECK(now.transfer.credit_waits == a.counters().credit_waits + b.counters().credit_waits);
    CHECK(now.transfer.of(request_kind::send).posted >= count);
    CHECK(now.transfer.of(request_kind::receive).completed >= count);
    CHECK(now.transfer.rnr_exceeded == 0);
  };
  p.rt.run(talk(p));
}

TEST_CASE("shared receives are counted where they are posted, and where they end",
          "[runtime][device]") {
  runtime rt{test::on_test_device()};
  if (rt.context().limits().srq_max == 0) CORDMA_SKIP("the device has no shared receive queues");
  const shared_receives& pool = rt.share_receives({.buffers = 64});
  const request_counters now = rt.metrics().transfer.of(request_kind::receive);
  CHECK(now.posted == 64);
  CHECK(pool.posted() == 64);
  CHECK(now.in_flight() == 64);
}

TEST_CASE("what sockets of datagrams did is in the metrics, those that were dropped included",
          "[runtime][device]") {
  runtime rt{test::on_test_device()};
  local_mr memory = rt.memory().allocate_zeroed(8);
  {
    datagram_socket socket = rt.open_datagram({.routes_max = 1});
    for (const int traffic_class : {0, 0, 4}) {
      datagram_address to = socket.address();
      to.path.traffic_class = std::uint8_t(traffic_class);
      rt.run(socket.send_to(to, memory));
    }
    CHECK(socket.counters().routes_found == 3);
  }
  datagram_socket other = rt.open_datagram();
  static_cast<void>(
      rt.run(other.join(other.address().path.gid.raw[11] == 0xff ? "239.9.8.7" : "ff15::987")));
  const datagram_counters now = rt.metrics().datagrams;
  CHECK(now.routes_found == 3);
  CHECK(now.routes_made == 2);
  CHECK(now.routes_given_up == 1);
  CHECK(now.routes_failed == 0);
  CHECK(now.groups_joined == 1);
  const scrape read{to_prometheus(rt.metrics())};
  CHECK(read[sample_of(rt, "datagram_routes_made_total")] == 2);
  CHECK(read[sample_of(rt, "datagram_groups_joined_total")] == 1);
}

TEST_CASE("connections and leases are counted, and those that are lost or late as such",
          "[runtime][device]") {
  connection_options lends;
  lends.agent.lending.bytes_max = 4096;
  lends.agent.lending.isolation_min = isolation::shared_key;
  connected_pair p{{}, {}, lends};
  CHECK(p.rt.metrics().connections.made == 2);
  CHECK(p.rt.metrics().connections.open == 2);
  {
    const remote_mr borrowed = p.rt.run(p.client.request_remote_mr(64));
    const metrics::lease_counters now = p.rt.metrics().leases;
    CHECK(now.lent == 1);
    CHECK(now.open == 1);
    CHECK(now.open_bytes == 64);
    CHECK(now.borrowed == 1);
    CHECK(now.held == 1);
  }
  CHECK_THROWS_AS(p.rt.run(p.client.request_remote_mr(8192)), error);
  CHECK(p.rt.metrics().leases.refused == 1);
  p.rt.run(test::until(p.rt.executor(), [&] { return p.rt.metrics().leases.open == 0; }));
  CHECK(p.rt.metrics().leases.held == 0);
  CHECK(p.rt.metrics().leases.expired == 0);
  p.rt.run(when_all(p.client.close(), p.server.close()));
  CHECK(p.rt.metrics().connections.open == 0);
  CHECK(p.rt.metrics().connections.lost == 0);

  p.rt.run(p.open({}));
  CHECK(p.rt.metrics().connections.made == 4);
  p.client = {};  // Dropped, which its peer hears as a death: no goodbye was said.
  p.rt.run(p.server.ended());
  const metrics::connection_counters now = p.rt.metrics().connections;
  CHECK(now.open == 0);
  CHECK(now.lost == 1);
  const scrape read{to_prometheus(p.rt.metrics())};
  CHECK(read[sample_of(p.rt, "connections_made_total")] == 4);
  CHECK(read[sample_of(p.rt, "connections_lost_total")] == 1);
  CHECK(read[sample_of(p.rt, "leases_lent_total")] == 1);
  CHECK(read[sample_of(p.rt, "leases_open")] == 0);
}

TEST_CASE("a lease that the peer keeps too long counts as expired", "[runtime][device]") {
  connection_options lends;
  lends.agent.lending.bytes_max = 4096;
  lends.agent.lending.isolation_min = isolation::shared_key;
  connected_pair p{{}, {}, lends};
  const remote_mr borrowed = p.rt.run(p.client.request_remote_mr(64, {.lease = 200ms}));
  p.rt.run(test::until(p.rt.executor(), [&] { return p.rt.metrics().leases.open == 0; }));
  CHECK(p.rt.metrics().leases.expired == p.server.lending().expired);
  CHECK(p.rt.metrics().leases.expired == 1);
}

TEST_CASE("metrics are read by another thread while the runtime works", "[runtime][device]") {
  connected_pair p;
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(128);
  std::atomic<bool> is_over = false;
  std::uint64_t reads = 0;
  bool has_fallen = false;
  std::thread reader{[&] {
    std::uint64_t before = 0;
    do {
      const std::uint64_t now = p.rt.metrics().transfer.of(request_kind::write).posted;
      has_fallen |= now < before;
      before = now;
      ++reads;
    } while (!is_over.load());
  }};
  // The work makes lists grow meanwhile, too.
  auto work = [](connected_pair& of, local_mr& mr) -> task<> {
    for (unsigned round = 0; round < 8; ++round) {
      co_await writes(of.client, mr.slice(0, 64), mr.remote_slice().slice(64, 64), 50);
      static_cast<void>(of.rt
                            .memory(verbs::access(unsigned(verbs::access::local_write) |
                                                  (round % 2 == 0 ? 0u : 2u)))
                            .allocate_zeroed(4096));
    }
  };
  p.rt.run(work(p, memory));
  is_over = true;
  reader.join();
  CHECK(reads > 0);
  CHECK_FALSE(has_fallen);
  CHECK(p.rt.metrics().transfer.of(request_kind::write).completed == 400);
}

TEST_CASE("metrics allocate nothing", "[runtime][device]") {
  const connected_pair p;
  const std::uint64_t before = support::thread_allocation_count();
  const metrics now = p.rt.metrics();
  CHECK(support::thread_allocation_count() == before);
  CHECK_FALSE(now.device.empty());
}

TEST_CASE("metrics are text that Prometheus can read", "[runtime][device]") {
  connected_pair p;
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(128);
  p.rt.run(writes(p.client, memory.slice(0, 64), memory.remote_slice().slice(64, 64), 3));
  const scrape read{to_prometheus(p.rt.metrics())};
  CHECK(read[sample_of(p.rt, "requests_posted_total", ",kind=\"write\"")] == 3);
  CHECK(read[sample_of(p.rt, "requests_completed_total", ",kind=\"write\"")] == 3);
  CHECK(read[sample_of(p.rt, "requests_in_flight", ",kind=\"write\"")] == 0);
  CHECK(read[sample_of(p.rt, "requests_posted_total", ",kind=\"bind\"")] == 0);
  CHECK(read[sample_of(p.rt, "memory_registrations_total")] >= 1);
  CHECK(read[sample_of(p.rt, "executor_iterations_total")] > 0);
  CHECK(read.size() >= 6 * detail::request_kinds + 21);
}

TEST_CASE("the metrics name what the executor waits with", "[runtime][device]") {
  for (const auto& [backend, name] :
       {std::pair{io_backend::epoll, "epoll"}, std::pair{io_backend::io_uring, "io_uring"}}) {
    if (backend == io_backend::io_uring && !test::has_io_uring()) continue;
    runtime_options options;
    options.executor.backend = backend;
    const runtime rt{test::on_test_device(std::move(options))};
    const scrape read{to_prometheus(rt.metrics())};
    CHECK(read[sample_of(rt, "executor_info", ",backend=\"" + std::string{name} + '"')] == 1);
  }
}

TEST_CASE("the runtimes of a group are told apart by a label", "[runtime][device]") {
  runtime_group group{{.each = [](unsigned) { return test::on_test_device(); }, .threads = 3}};
  // A thread may sleep from its first turn on, which counts when it has come to it.
  group.run([](runtime&, unsigned) -> task<> { co_return; });
  std::vector<labelled_metrics> all;
  const std::array<std::string_view, 3> numbers{"0", "1", "2"};
  for (unsigned n = 0; n < 3; ++n) all.push_back({group[n].metrics(), {"thread", numbers[n]}});
  const scrape read{to_prometheus(all)};
  for (const std::string_view n : numbers) {
    CHECK(read[sample_of(group[0], "executor_iterations_total",
                         ",thread=\"" + std::string{n} + '"')] > 0);
  }
  CHECK(read.size() % 3 == 0);
}

TEST_CASE("a port's counts of receivers that were not ready are samples where they are",
          "[runtime]") {
  metrics one;
  one.device = "mlx5_0";
  one.port = 2;
  one.rnr.values[0] = 9;
  const scrape read{to_prometheus(one)};
  CHECK(read["cordma_port_rnr_total{device=\"mlx5_0\",port=\"2\",counter=\"out_of_buffer\"}"] == 9);
}

TEST_CASE("a port's count of wrong Q_Keys is a sample where the port can be asked", "[runtime]") {
  metrics one;
  one.device = "mlx5_0";
  one.port = 2;
  const std::size_t before = scrape{to_prometheus(one)}.size();
  one.qkey_violations = 9;
  const scrape read{to_prometheus(one)};
  CHECK(read["cordma_port_qkey_violations_total{device=\"mlx5_0\",port=\"2\"}"] == 9);
  CHECK(read.size() == before + 1);
}

TEST_CASE("a label's value may be any text, its name not", "[runtime]") {
  metrics one;
  one.device = "d";
  one.executor.iterations = 5;
  const scrape read{to_prometheus(one, {"tenant", "a \"b\"\\\nc"})};
  CHECK(read["cordma_executor_iterations_total{device=\"d\",tenant=\"a \\\"b\\\"\\\\\\nc\"}"] == 5);
  for (const char* const bad : {"1st", "a-b", "__name__", "kind", "device", "port", "a b", "é"}) {
    INFO(bad);
    CHECK_THROWS_WITH(to_prometheus(one, {bad, "x"}), Catch::Contains(bad));
  }
}
