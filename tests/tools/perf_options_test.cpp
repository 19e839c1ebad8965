// Options of cordma-perf beyond the plainest: each as a user runs it.

#include "support/commands.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/temporary_folder.hpp"
#include "tools/folders.hpp"

#include <cordma/runtime/runtime_group.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

using namespace cordma::test;
using Catch::Matchers::Contains;

namespace {

const std::string local = CORDMA_PERF " --local --device ";

outcome run_local(const std::string& arguments) {
  return run(local + device_name() + ' ' + arguments);
}

std::string content(const std::string& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

std::vector<std::vector<std::string>> rows_of(const std::string& csv) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines{csv};
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string>& cells = rows.emplace_back();
    std::istringstream row{line + ','};  // The last cell may be empty.
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
  }
  return rows;
}

/// Returns the first number behind `key` in JSON.
double number(const std::string& json, const std::string& key) {
  std::smatch found;
  const std::regex pattern{'"' + key + "\": ([-0-9.e+]+)"};
  INFO(json);
  REQUIRE(std::regex_search(json, found, pattern));
  return std::stod(found[1]);
}

}  // namespace

TEST_CASE("cordma-perf connects as its options say, whatever the operation", "[tools][device]") {
  temporary_folder folder;
  const std::string file = (folder.path / "out.json").string();
  for (const char* op : {"write", "send", "rpc", "xrc"}) {
    if (is_rxe() && op == std::string{"xrc"}) continue;
    const outcome ran = run_local(std::string{"--operations 40 --sl 0 --tclass 8 --mtu 1024 "
                                              "--inline 48 --retries 5 --rnr-retries 4 --json "} +
                                  file + " --op " + op);
    INFO(op << ": " << ran.output);
    REQUIRE(ran.exit_status == 0);
    const std::string json = content(file);
    CHECK(number(json, "mtu") == 1024);
    CHECK(number(json, "inline") == 48);
    CHECK(number(json, "tclass") == 8);
    CHECK(number(json, "retries") == 5);
    CHECK(number(json, "rnr_retries") == 4);
    CHECK(number(json, "operations") == 40);
  }
}

TEST_CASE("cordma-perf says which path the device cannot give", "[tools][device]") {
  const outcome port = run_local("--operations 5 --ib-port 99");
  CHECK(port.exit_status == 1);
  CHECK_THAT(port.output, Contains("port 99"));
  const outcome gid = run_local("--operations 5 --gid-index 250");
  CHECK(gid.exit_status == 1);
  CHECK_THAT(gid.output, Contains("250"));
  const outcome inlined = run_local("--operations 5 --inline 64K");
  CHECK(inlined.exit_status != 0);
}

TEST_CASE("cordma-perf says in one line which of its options do not fit", "[tools]") {
  struct wrong {
    const char* arguments;
    const char* words;
  };
  for (const wrong& w : {wrong{"--sl 16", "--sl 16"},
                         {"--mtu 1500", "--mtu 1500: it is one of"},
                         {"--ib-port 0", "--ib-port 0"},
                         {"--gid-index 256", "--gid-index 256"},
                         {"--op ud --tclass 1", "--tclass: ud measures no connection"},
                         {"--op uc-write --retries 1", "UC repeats nothing"},
                         {"--rate 0", "--rate '0'"},
                         {"--gaps fixed", "--gaps fixed: they are of --rate"},
                         {"--rate 5 --gaps even", "--gaps 'even'"},
                         {"--warm-up -1", "--warm-up '-1'"},
                         {"--pin x", "--pin 'x'"},
                         {"--pin 0 --threads 4", "for 8 threads"},
                         {"--forever --size 8:16", "--forever: the first of 2 lines"},
                         {"--forever --operations 9", "--operations 9"},
                         {"--report-every 0", "--report-every '0'"},
                         {"--fail-above p99=20", "--fail-above 'p99=20'"},
                         {"--fail-below speed=20", "it bounds one of p50"},
                         {"--fail-above ratio=1.1", "only --baseline"},
                         {"--bidirectional --op rpc", "there and back already"},
                         {"--baseline --rate 5", "--rate 5: the raw loop"},
                         {"--baseline --bidirectional", "--bidirectional: the raw loop"},
                         {"--baseline --forever", "--forever: the raw loop"},
                         {"--baseline --gid-index 0", "--gid-index: the raw loop"}}) {
    const outcome ran = run(std::string{CORDMA_PERF " --local "} + w.arguments);
    INFO(w.arguments << ": " << ran.output);
    CHECK(ran.exit_status == 2);
    CHECK_THAT(ran.output, Contains(w.words) && Catch::StartsWith("cordma-perf: "));
    CHECK(std::ranges::count(ran.output, '\n') == 1);
  }
}

TEST_CASE("cordma-perf says where and when its numbers were measured", "[tools][device]") {
  temporary_folder folder;
  const std::string file = (folder.path / "out.json").string();
  const outcome ran = run_local("--operations 5 --json " + file);
  INFO(ran.output);
  REQUIRE(ran.exit_status == 0);
  const std::string json = content(file);
  INFO(json);
  CHECK(std::regex_search(json, std::regex{"\"version\": \"[0-9]+\\.[0-9]+\\.[0-9]+\""}));
  CHECK(std::regex_search(json, std::regex{"\"date\": \"20[0-9-]{8}T[0-9:]{8}Z\""}));
  const std::string host = run("uname -n").output;
  CHECK_THAT(json, Contains("\"host\": \"" + host.substr(0, host.size() - 1) + '"') &&
                       Contains("\"device\": \"" + device_name()) &&
                       Contains("\"server\": \"local\""));
}

TEST_CASE("cordma-perf writes a row of CSV for each line", "[tools][device]") {
  temporary_folder folder;
  const std::string file = (folder.path / "out.csv").string();
  const outcome ran = run_local("--operations 25 --size 8:32 --csv " + file);
  INFO(ran.output);
  REQUIRE(ran.exit_status == 0);
  const auto rows = rows_of(content(file));
  REQUIRE(rows.size() == 4);
  for (const auto& row : rows) CHECK(row.size() == rows.front().size());
  const auto column = [&rows](const std::string& name) {
    const auto found = std::ranges::find(rows.front(), name);
    REQUIRE(found != rows.front().end());
    return std::size_t(found - rows.front().begin());
  };
  for (std::size_t i = 1; i < rows.size(); ++i) {
    CHECK(rows[i][column("device")] == device_name());
    CHECK(rows[i][column("size_bytes")] == std::to_string(4 << i));
    CHECK(rows[i][column("operations")] == "25");
    CHECK(rows[i][column("asked_per_second")] == "");
    CHECK(std::stod(rows[i][column("p99_us")]) >= std::stod(rows[i][column("p50_us")]));
  }
}

TEST_CASE("cordma-perf writes each latency into a histogram", "[tools][device]") {
  temporary_folder folder;
  const std::string file = (folder.path / "out.csv").string();
  const outcome ran = run_local("--operations 300 --depth 1:2 --histogram " + file);
  INFO(ran.output);
  REQUIRE(ran.exit_status == 0);
  const auto rows = rows_of(content(file));
  REQUIRE(rows.size() > 2);
  REQUIRE(rows.front().size() == 13);
  CHECK(rows.front()[11] == "count");
  std::uint64_t at_depth_1 = 0, at_depth_2 = 0;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    REQUIRE(rows[i].size() == 13);
    (rows[i][2] == "1" ? at_depth_1 : at_depth_2) += std::stoull(rows[i][11]);
    CHECK(std::stoull(rows[i][9]) <= std::stoull(rows[i][10]));
  }
  CHECK(at_depth_1 == 300);
  CHECK(at_depth_2 == 300);
  CHECK(std::stod(rows.back()[12]) == 1);
}

TEST_CASE("cordma-perf prints Gbit/s where it is asked to", "[tools][device]") {
  const outcome bytes = run_local("--operations 5");
  CHECK_THAT(bytes.output, Contains("GB/s") && !Contains("Gbit/s"));
  const outcome bits = run_local("--operations 5 --gbits");
  CHECK_THAT(bits.output, Contains("Gbit/s") && !Contains("GB/s"));
}

TEST_CASE("cordma-perf ends with status 3 beyond a limit, and with 0 within", "[tools][device]") {
  const outcome kept = run_local("--operations 50 --fail-above max=1000s --fail-below ops/s=0.001");
  INFO(kept.output);
  CHECK(kept.exit_status == 0);
  const outcome over = run_local(
      "--operations 50 --size 8:16 --fail-above p99=1ns,max=1000s --fail-below ops/s=9000M");
  INFO(over.output);
  CHECK(over.exit_status == 3);
  CHECK_THAT(over.output, Contains("cordma-perf: write, 8 bytes") && Contains("above 1ns") &&
                              Contains("write, 16 bytes") && Contains("below 9000M"));
  CHECK_THAT(over.output, !Contains("1000s"));
}

TEST_CASE("cordma-perf starts as many operations a second as it is told", "[tools][device]") {
  temporary_folder folder;
  const std::string file = (folder.path / "out.json").string();
  for (const char* gaps : {"fixed", "exponential"}) {
    const outcome ran = run_local(std::string{"--op rpc --rate 200 --operations 40 --warm-up 0 "
                                              "--threads 2 --gaps "} +
                                  gaps + " --json " + file);
    INFO(gaps << ": " << ran.output);
    REQUIRE(ran.exit_status == 0);
    const std::string json = content(file);
    CHECK(number(json, "operations") == 40);
    CHECK(number(json, "asked_per_second") == 200);
    // Two threads have 20 operations each, a hundred a second: the last is due after 0.19 s.
    if (gaps == std::string{"fixed"}) CHECK(number(json, "seconds") >= 0.19);
    CHECK_THAT(json, Contains("lateness_us") && Contains(std::string{"\"gaps\": \""} + gaps));
    CHECK_THAT(ran.output, Contains("asked/s") && Contains("missed"));
  }
}

TEST_CASE("cordma-perf tells what it did not begin at a rate beyond the device",
          "[tools][device]") {
  temporary_folder folder;
  const std::string file = (folder.path / "out.json").string();
  const outcome ran = run_local(
      "--rate 100M --duration 0.05 --warm-up 0 --fail-below achieved=0.9 "
      "--json " +
      file);
  INFO(ran.output);
  CHECK(ran.exit_status == 3);
  const std::string json = content(file);
  const double all = number(json, "operations") + number(json, "missed");
  CHECK(all == Approx(5'000'000).epsilon(0.001));
  CHECK(number(json, "missed") > 0);
}

TEST_CASE("cordma-perf has a line for each rate of a sweep, and of each operation",
          "[tools][device]") {
  for (const char* op : {"send", "stream", "ud"}) {
    const outcome ran = run_local(std::string{"--rate 1k:4k --operations 20 --op "} + op);
    INFO(op << ": " << ran.output);
    CHECK(ran.exit_status == 0);
    CHECK_THAT(ran.output, Contains("1000.0") && Contains("2000.0") && Contains("4000.0"));
  }
}

TEST_CASE("cordma-perf runs for ever, with reports, until it is told to stop", "[tools][device]") {
  const std::string load = GENERATE("", "--rate");
  std::vector<std::string> words{CORDMA_PERF, "--local",        "--device", device_name(),
                                 "--forever", "--report-every", "0.05"};
  if (!load.empty()) words.insert(words.end(), {load, "20"});
  background running{words};
  running.line_after("time s");
  running.line_after(" ");  // The first row.
  REQUIRE(::kill(running.pid(), SIGINT) == 0);
  const outcome ended = running.end();
  INFO(ended.output);
  CHECK(ended.exit_status == 0);
  CHECK_THAT(ended.output, Contains("\nwrite ") && Contains("wakes/op"));
}

TEST_CASE("a server of cordma-perf serves a client that runs for ever, and the next one",
          "[tools][device]") {
  background server{{CORDMA_PERF, "server", "--port", "0", "--device", device_name()}};
  const std::string address = server.line_after("listening on ");
  background first{{CORDMA_PERF, "client", address, "--device", device_name(), "--forever",
                    "--report-every", "0.05", "--op", "send"}};
  first.line_after("time s");
  first.line_after(" ");  // The first row.
  REQUIRE(::kill(first.pid(), SIGTERM) == 0);
  CHECK(first.end().exit_status == 0);
  const outcome second =
      background{{CORDMA_PERF, "client", address, "--device", device_name(), "--operations", "9"}}
          .end();
  INFO(second.output);
  CHECK(second.exit_status == 0);
}

TEST_CASE("cordma-perf says how far it is in a file, too, but seldom", "[tools][device]") {
  const outcome ran = run_local("--duration 7");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Contains(" operations, ") && Contains(" a second\n"));
  CHECK_THAT(ran.output, !Contains("\x1b"));
}

TEST_CASE("cordma-perf warms up for as long as it is told", "[tools][device]") {
  temporary_folder folder;
  const std::string file = (folder.path / "out.json").string();
  CHECK(run_local("--operations 30 --warm-up 0 --json " + file).exit_status == 0);
  CHECK(number(content(file), "warm_up_operations") == 0);
  CHECK(number(content(file), "operations") == 30);
  CHECK(run_local("--operations 30 --warm-up 0.02 --json " + file).exit_status == 0);
  CHECK(number(content(file), "warm_up_operations") > 0);
  CHECK(number(content(file), "operations") == 30);
}

TEST_CASE("cordma-perf pins the threads of both sides", "[tools][device]") {
  const std::vector<unsigned> cpus = cordma::runtime_group::allowed_cpus();
  if (cpus.size() < 2) CORDMA_SKIP("each side needs a CPU of its own");
  const std::string two = std::to_string(cpus[0]) + ',' + std::to_string(cpus[1]);
  background pinned{{CORDMA_PERF, "--local", "--device", device_name(), "--forever",
                     "--report-every", "0.05", "--pin", two}};
  pinned.line_after("time s");  // All threads run.
  const auto threads_on = [](pid_t process, unsigned cpu) {
    return run("grep -l '^Cpus_allowed_list:\t" + std::to_string(cpu) + "$' /proc/" +
               std::to_string(process) + "/task/*/status")
        .output;
  };
  const std::string child = content("/proc/" + std::to_string(pinned.pid()) + "/task/" +
                                    std::to_string(pinned.pid()) + "/children");
  CHECK_THAT(threads_on(pinned.pid(), cpus[0]), Contains("/status"));
  CHECK_THAT(threads_on(pinned.pid(), cpus[1]), !Contains("/status"));
  CHECK_THAT(threads_on(std::stoi(child), cpus[1]), Contains("/status"));
  CHECK_THAT(threads_on(std::stoi(child), cpus[0]), !Contains("/status"));
  pinned.kill();
  background server{{CORDMA_PERF, "server", "--port", "0", "--device", device_name(), "--pin",
                     std::to_string(cpus[0])}};
  const std::string address = server.line_after("listening on ");
  const outcome wide = background{{CORDMA_PERF, "client", address, "--device", device_name(),
                                   "--operations", "9", "--threads", "2"}}
                           .end();
  INFO(wide.output);
  CHECK(wide.exit_status == 1);
  CHECK_THAT(wide.output, Contains("--pin: 1 CPU(s) for 2 threads"));
}

TEST_CASE("cordma-perf measures both directions at once", "[tools][device]") {
  temporary_folder folder;
  const std::string file = (folder.path / "out.json").string();
  for (const char* op : {"write", "read", "cas", "faa"}) {
    const outcome ran = run_local(std::string{"--bidirectional --operations 300 --depth 4 "
                                              "--connections 3 --threads 2 --op "} +
                                  op + " --json " + file);
    INFO(op << ": " << ran.output);
    REQUIRE(ran.exit_status == 0);
    const std::string json = content(file);
    CHECK(number(json, "operations") == 300);
    CHECK(number(json, "server_operations") == 300);
    CHECK(number(json, "server_p50_us") > 0);
    const double sum = number(json, "operations_per_second") + number(json, "server_per_second");
    CHECK(number(json, "both_per_second") == Approx(sum).epsilon(0.001));
    CHECK_THAT(ran.output, Contains("srv p99"));
  }
}

TEST_CASE("cordma-perf ends both directions by time, by rate and by a stop", "[tools][device]") {
  temporary_folder folder;
  const std::string file = (folder.path / "out.json").string();
  const outcome timed = run_local("--bidirectional --duration 0.1 --json " + file);
  INFO(timed.output);
  REQUIRE(timed.exit_status == 0);
  CHECK(number(content(file), "server_seconds") >= 0.1);
  const outcome paced = run_local("--bidirectional --rate 500 --operations 50 --json " + file);
  INFO(paced.output);
  REQUIRE(paced.exit_status == 0);
  CHECK(number(content(file), "server_operations") == 50);
  CHECK(number(content(file), "server_seconds") >= 0.098);
  background running{{CORDMA_PERF, "--local", "--device", device_name(), "--forever",
                      "--bidirectional", "--report-every", "0.05"}};
  running.line_after("time s");
  running.line_after(" ");  // The first row.
  REQUIRE(::kill(running.pid(), SIGINT) == 0);
  const outcome ended = running.end();
  INFO(ended.output);
  CHECK(ended.exit_status == 0);
  CHECK_THAT(ended.output, Contains("srv p99"));
}
