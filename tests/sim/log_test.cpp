// The runtimes of simulated hosts tell their hooks of each other.
#include "open_network.hpp"

#include <cordma/base/event_log.hpp>
#include <cordma/group/group.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/sim.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

/// The lines of one host's hook.
struct host_log {
  std::vector<std::string> lines;
  std::map<event_log::kind, unsigned> counts;

  runtime_options options() {
    runtime_options o = test::open_network();
    o.log = {.hook =
                 [this](const event_log::record& r) {
                   ++counts[r.kind];
                   lines.push_back(r.to_string());
                 },
             .least_urgent = event_log::level::debug};
    return o;
  }
  [[nodiscard]] std::string line_of(event_log::kind event) const {
    const std::string name = std::string{" "} + to_string(event);
    const auto found = std::ranges::find_if(
        lines, [&](const std::string& line) { return line.find(name) != line.npos; });
    return found == lines.end() ? "" : *found;
  }
};

/// A client that sends a large message every millisecond, and its server.
struct logged_hosts {
  logged_hosts() {
    server.start([this](runtime& rt) { return receive(rt); },
                 [this] { return server_log.options(); });
    client.start([this](runtime& rt) { return send(rt); }, [this] { return client_log.options(); });
  }
  task<> receive(runtime& rt) {
    listener listening = rt.listen(server.endpoint(test::sim_port));
    message_stream stream{co_await listening.accept()};
    for (;;) {
      const auto received = co_await as_result(stream.receive());
      if (!received.has_value()) break;
      ++received_count;
    }
    co_await stream.close();
  }
  task<> send(runtime& rt) {
    co_await sleep_for(1ms);
    message_stream stream{co_await rt.connect(server.endpoint(test::sim_port))};
    const std::vector<std::byte> large(256 << 10);
    for (unsigned n = 0; n < 20; ++n) {
      const auto sent = co_await as_result(stream.send(large));
      if (!sent.has_value()) co_return;
      co_await sleep_for(1ms);
    }
    co_await stream.close();
  }

  sim::world w{1, sim::faults::none()};
  sim::host& server = w.add_host("server");
  sim::host& client = w.add_host("client");
  host_log server_log;
  host_log client_log;
  unsigned received_count = 0;
};

task<> add_until_one_dies(runtime& rt, const std::vector<endpoint>& members, unsigned rank) {
  group_options options;
  options.connections.insecure = true;
  options.silence_max = 2s;
  group g = co_await group::join(rt, meeting::by_list(members, rank), options);
  for (bool is_whole = true; is_whole;) {
    std::int64_t value = 1;
    is_whole = (co_await as_result(g.all_reduce(std::span{&value, 1}, reduction::sum))).has_value();
    co_await sleep_for(1ms);
  }
  co_await (co_await g.shrink()).leave();
  co_await g.leave();
}

}  // namespace

TEST_CASE("two hosts log each other, in simulated time, and no message of theirs", "[sim]") {
  logged_hosts h;
  h.w.run(10s);
  CHECK(h.received_count == 20);
  const std::map<event_log::kind, unsigned> of_client{{event_log::kind::connected, 1},
                                                      {event_log::kind::closed, 1}};
  CHECK(h.client_log.counts == of_client);
  const std::map<event_log::kind, unsigned> of_server{{event_log::kind::listening, 1},
                                                      {event_log::kind::listener_closed, 1},
                                                      {event_log::kind::connected, 1},
                                                      {event_log::kind::closed, 1}};
  CHECK(h.server_log.counts == of_server);
  const std::string where = h.server.endpoint(test::sim_port).to_string();
  CHECK_THAT(h.client_log.line_of(event_log::kind::connected),
             Catch::Contains(" peer=" + where + ' '));
  CHECK_THAT(h.server_log.line_of(event_log::kind::connected),
             Catch::Contains(" local=" + where + ' '));
  logged_hosts again;
  again.w.run(10s);
  CHECK(again.client_log.lines == h.client_log.lines);
  CHECK(again.server_log.lines == h.server_log.lines);
}

TEST_CASE("the death of a host is logged by its peer", "[sim]") {
  logged_hosts h;
  h.w.after(10ms, [&] { h.server.kill(); });
  h.w.run(30s);
  CHECK(h.client_log.counts[event_log::kind::lost] == 1);
  CHECK_THAT(h.client_log.line_of(event_log::kind::lost),
             Catch::Contains(" peer=" + h.server.endpoint(test::sim_port).to_string()) &&
                 Catch::Contains(" why="));
  CHECK(h.server_log.counts[event_log::kind::lost] == 0);
}

TEST_CASE("a device that fails is logged on its host, the loss on both", "[sim]") {
  logged_hosts h;
  h.w.after(10ms, [&] { h.client.fail_device(); });
  h.w.run(30s);
  CHECK(h.client_log.counts[event_log::kind::device_failed] >= 1);
  CHECK(h.client_log.counts[event_log::kind::lost] == 1);
  CHECK(h.server_log.counts[event_log::kind::device_failed] == 0);
  CHECK(h.server_log.counts[event_log::kind::lost] == 1);
}

TEST_CASE("each rank that goes on logs the one that died", "[sim]") {
  sim::world w{1, sim::faults::none()};
  std::vector<endpoint> members;
  std::vector<host_log> logs(3);
  std::vector<sim::host*> hosts;
  for (unsigned r = 0; r < 3; ++r) hosts.push_back(&w.add_host("rank" + std::to_string(r)));
  for (const sim::host* h : hosts) members.push_back(h->endpoint(test::sim_port));
  for (unsigned r = 0; r < 3; ++r)
    hosts[r]->start([&members, r](runtime& rt) { return add_until_one_dies(rt, members, r); },
                    [&logs, r] { return logs[r].options(); });
  w.after(100ms, [&] { hosts[2]->kill(); });
  w.run(60s);
  for (unsigned r = 0; r < 2; ++r) {
    INFO(r);
    CHECK(logs[r].counts[event_log::kind::rank_lost] == 1);
    CHECK_THAT(logs[r].line_of(event_log::kind::rank_lost),
               Catch::Contains(" note=\"rank 2 of 3\" why="));
  }
}
