// A server of cordma-perf, in a process of its own, and clients of all kinds.

#include "perf/methods.hpp"

#include "support/commands.hpp"
#include "support/device.hpp"
#include "tools/folders.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/rpc/client.hpp>
#include <cordma/runtime/runtime.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

using namespace cordma::test;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using cordma::task;

namespace {

/// A server on a port that the kernel chose, once it listens.
struct server_process {
  explicit server_process(const std::vector<std::string>& options = {}) : process{words(options)} {
    address = process.line_after("listening on ");
  }
  static std::vector<std::string> words(const std::vector<std::string>& options) {
    std::vector<std::string> all{CORDMA_PERF, "server", "--port", "0", "--device", device_name()};
    all.insert(all.end(), options.begin(), options.end());
    return all;
  }
  [[nodiscard]] std::vector<std::string> client(const std::vector<std::string>& options) const {
    std::vector<std::string> all{CORDMA_PERF, "client", address, "--device", device_name()};
    all.insert(all.end(), options.begin(), options.end());
    return all;
  }
  /// Runs to its end.
  [[nodiscard]] outcome ask(const std::vector<std::string>& options) const {
    return background{client(options)}.end();
  }
  void check_serves() const {
    const outcome ran = ask({"--operations", "20"});
    INFO(ran.output);
    CHECK(ran.exit_status == 0);
  }
  background process;
  std::string address;
};

/// The calls of a client that is not ours, on a connection to the server.
using conversation = std::function<task<>(cordma::rpc::client&)>;

task<> converse(cordma::runtime& rt, cordma::endpoint to, const conversation& say) {
  cordma::connection conn = co_await rt.connect(std::move(to));
  cordma::rpc::client calls{std::move(conn)};
  co_await say(calls);
  co_await calls.close();
}

void converse(const server_process& with, const conversation& say) {
  cordma::runtime_options options;
  options.device = device_name();
  cordma::runtime rt{std::move(options)};
  rt.run(converse(rt, cordma::endpoint::parse(with.address), say));
}

task<> check_refused(cordma::rpc::client& calls, perf::job_frame frame) {
  const auto answer = co_await cordma::as_result(calls.call<perf::open_job>(frame));
  REQUIRE(answer.has_failure());
  CHECK(answer.failure().code == cordma::make_error_code(cordma::errc::handler_failed));
}

task<> ask_nonsense(cordma::rpc::client& calls) {
  const perf::job_frame good = encode(perf::job{});
  std::vector<perf::job_frame> frames(6, good);
  frames[0].op = 200;
  frames[1].size_bytes = ~0ull;
  frames[2].connections = ~0u;
  frames[3].threads = ~0u;
  frames[4].depth = ~0u;
  frames[5].duration_ms = ~0ull;
  for (const perf::job_frame& frame : frames) co_await check_refused(calls, frame);
  const auto remote_ends = co_await cordma::as_result(calls.call<perf::remote_ends_of>(7));
  CHECK(remote_ends.has_failure());
  const auto end = co_await cordma::as_result(calls.call<perf::end_job>(7));
  CHECK(end.has_failure());
}

task<> wait_for_remote_ends(cordma::rpc::client& calls, std::uint32_t number) {
  const auto answer = co_await cordma::as_result(calls.call<perf::remote_ends_of>(number));
  REQUIRE(answer.has_failure());
  CHECK_THAT(answer.failure().to_string(), Contains("not one of this client's"));
}

task<> end_it(cordma::rpc::client& calls, std::uint32_t number) {
  static_cast<void>(co_await calls.call<perf::end_job>(number));
}

task<> end_while_it_waits(cordma::rpc::client& calls) {
  const perf::opened job = co_await calls.call<perf::open_job>(encode(perf::job{}));
  co_await cordma::when_all(wait_for_remote_ends(calls, job.number), end_it(calls, job.number));
}

task<> leave_a_job(cordma::rpc::client& calls) {
  static_cast<void>(co_await calls.call<perf::open_job>(encode(perf::job{})));
  const auto second = co_await cordma::as_result(calls.call<perf::open_job>(encode(perf::job{})));
  REQUIRE(second.has_failure());
  CHECK_THAT(second.failure().to_string(), Contains("the server runs a job of"));
}

}  // namespace

TEST_CASE("a server of cordma-perf serves client after client", "[tools][device]") {
  const server_process server;
  for (const char* op : {"write", "send", "rpc", "stream"}) {
    const outcome ran = server.ask({"--operations", "100", "--op", op, "--depth", "3"});
    INFO(op << ": " << ran.output);
    CHECK(ran.exit_status == 0);
    CHECK_THAT(ran.output, Contains(std::string{"\n"} + op + ' '));
  }
}

TEST_CASE("a server of cordma-perf says when other hosts can reach it", "[tools][device]") {
  server_process server{{"--host", "0.0.0.0"}};
  server.process.line_after("insecure: ");
  server.check_serves();
}

TEST_CASE("a server of cordma-perf survives a client that is killed in the middle",
          "[tools][device]") {
  server_process server;
  for (const char* op : {"write", "send", "rpc", "stream"}) {
    INFO(op);
    background client{server.client({"--duration", "3000", "--op", op, "--depth", "8"})};
    server.process.line_after(op);  // The job has begun.
    client.kill();
    server.process.line_after(": gone");
  }
  server.check_serves();
}

TEST_CASE("a client of cordma-perf says in one line that its server is gone", "[tools][device]") {
  server_process server;
  background client{server.client({"--duration", "3000"})};
  server.process.line_after("write");
  server.process.kill();
  const outcome ran = client.end();
  INFO(ran.output);
  CHECK(ran.exit_status == 1);
  CHECK_THAT(ran.output,
             Catch::StartsWith("cordma-perf: the server at ") && Catch::Contains("start it again"));
  CHECK(std::ranges::count(ran.output, '\n') == 1);
}

TEST_CASE("a second client of cordma-perf is told that the server is busy", "[tools][device]") {
  server_process server;
  background first{server.client({"--duration", "3000"})};
  server.process.line_after("write");
  const outcome second = server.ask({"--operations", "10"});
  INFO(second.output);
  CHECK(second.exit_status == 1);
  CHECK_THAT(second.output, Contains("the server runs a job of 127.0.0.1"));
  CHECK(std::ranges::count(second.output, '\n') == 1);
}

TEST_CASE("a server of cordma-perf gives no more memory or threads than it was told to",
          "[tools][device]") {
  const server_process server{{"--memory", "1M", "--threads", "1"}};
  const outcome large = server.ask({"--operations", "10", "--size", "2M"});
  CHECK(large.exit_status == 1);
  CHECK_THAT(large.output, Contains("takes 2 MiB here, and the server gives 1 MiB"));
  const outcome wide = server.ask({"--operations", "10", "--threads", "2"});
  CHECK(wide.exit_status == 1);
  CHECK_THAT(wide.output, Contains("--threads 2: the server has 1"));
  server.check_serves();
}

TEST_CASE("a server of cordma-perf refuses what no client of its own asks for", "[tools][device]") {
  const server_process server;
  converse(server, ask_nonsense);
  server.check_serves();
}

TEST_CASE("a job of cordma-perf may end while its client waits for its places", "[tools][device]") {
  const server_process server;
  converse(server, end_while_it_waits);
  server.check_serves();
}

TEST_CASE("a job of cordma-perf ends with its client", "[tools][device]") {
  server_process server;
  converse(server, leave_a_job);
  server.process.line_after(": gone");
  server.check_serves();
}
