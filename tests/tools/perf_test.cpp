// cordma-perf as people run it: both ends in one command, and what it says.

#include "support/commands.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/temporary_folder.hpp"
#include "tools/folders.hpp"

#include <cordma/verbs/device.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

using namespace cordma::test;
using Catch::Matchers::Contains;

namespace {

struct local_run {
  explicit local_run(const std::string& arguments)
      : ran{run(CORDMA_PERF " --local --device " + device_name() + " --json " +
                (folder.path / "out.json").string() + ' ' + arguments)} {
    std::ifstream file{folder.path / "out.json"};
    json = {std::istreambuf_iterator<char>{file}, {}};
  }
  /// Gives each number that follows `key` in the JSON; NAN: null.
  [[nodiscard]] std::vector<double> values(const std::string& key) const {
    std::vector<double> all;
    const std::regex pattern{'"' + key + "\": ([-0-9.e+]+|null)"};
    const std::sregex_iterator none;
    for (std::sregex_iterator at{json.begin(), json.end(), pattern}; at != none; ++at) {
      all.push_back((*at)[1] == "null" ? NAN : std::stod((*at)[1]));
    }
    return all;
  }
  [[nodiscard]] double value(const std::string& key) const {
    const std::vector<double> all = values(key);
    REQUIRE(all.size() == 1);
    return all.front();
  }
  [[nodiscard]] outcome parse(const std::string& file) const {
    const std::string path = (folder.path / file).string();
    return run(file.ends_with("json")
                   ? "python3 -m json.tool " + path
                   : "python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' " + path);
  }

  temporary_folder folder;
  outcome ran;
  std::string json;
};

void check_percentiles(const local_run& r) {
  std::vector<double> all;
  for (const char* key : {"p50", "p90", "p99", "p99_9", "max"}) all.push_back(r.value(key));
  CHECK(all.front() > 0);
  CHECK(std::ranges::is_sorted(all));
}

}  // namespace

TEST_CASE("cordma-perf measures each operation between two processes", "[tools][device]") {
  const auto what = GENERATE(table<std::string, std::string>({{"write", "event"},
                                                              {"read", "adaptive"},
                                                              {"send", "event"},
                                                              {"write-imm", "adaptive"},
                                                              {"cas", "event"},
                                                              {"faa", "adaptive"},
                                                              {"rpc", "event"},
                                                              {"stream", "adaptive"},
                                                              {"ud", "event"},
                                                              {"multicast", "adaptive"},
                                                              {"uc-write", "event"},
                                                              {"uc-send", "adaptive"},
                                                              {"uc-write-imm", "event"}}));
  const auto& [op, mode] = what;
  const local_run r{"--operations 300 --depth 4 --op " + op + " --mode " + mode};
  INFO(op << ' ' << mode << ": " << r.ran.output << r.json);
  REQUIRE(r.ran.exit_status == 0);
  CHECK_THAT(r.ran.output, Contains("device " + device_name()) && Contains("\n" + op + " "));
  CHECK_THAT(r.json, Contains("\"op\": \"" + op + "\"") && Contains("\"baseline\": null"));
  CHECK(r.value("operations") == 300);
  CHECK(r.value("depth") == 4);
  CHECK(r.value("seconds") > 0);
  CHECK(r.value("operations_per_second") > 0);
  CHECK(r.value("system_calls") >= 0);
  CHECK(r.value("cpu_us") > 0);
  CHECK(r.value("server_cpu_us") > 0);
  check_percentiles(r);
}

TEST_CASE("cordma-perf measures atomic writes, alone and beside raw verbs", "[tools][device]") {
  if (!cordma::verbs::context{device_name()}.limits().atomic_write)
    CORDMA_SKIP("the device has no ATOMIC WRITE");
  const std::string how = GENERATE("--mode event", "--baseline");
  const local_run r{"--operations 210 --depth 4 --op atomic-write " + how};
  INFO(r.ran.output << r.json);
  REQUIRE(r.ran.exit_status == 0);
  CHECK(r.value("operations") == 210);
  CHECK(r.value("size_bytes") == 8);
}

TEST_CASE("cordma-perf does as many operations as it is told, whoever does them",
          "[tools][device]") {
  const local_run r{"--operations 1001 --threads 2 --connections 3 --depth 2 --op rpc"};
  INFO(r.ran.output);
  REQUIRE(r.ran.exit_status == 0);
  CHECK(r.value("operations") == 1001);
  CHECK(r.value("connections") == 3);
  CHECK(r.value("threads") == 2);
}

TEST_CASE("cordma-perf has a line for each size and each depth of its sweeps", "[tools][device]") {
  const local_run r{"--operations 20 --size 8:32 --depth 1:4"};
  INFO(r.ran.output);
  REQUIRE(r.ran.exit_status == 0);
  CHECK(r.values("size_bytes") == std::vector<double>{8, 8, 8, 16, 16, 16, 32, 32, 32});
  CHECK(r.values("depth") == std::vector<double>{1, 2, 4, 1, 2, 4, 1, 2, 4});
  CHECK(r.values("operations") == std::vector<double>(9, 20));
  CHECK(r.parse("out.json").exit_status == 0);
}

TEST_CASE("cordma-perf moves messages that are longer than a buffer", "[tools][device]") {
  const std::string op = GENERATE("write", "read", "send", "write-imm", "rpc", "stream");
  const local_run r{"--operations 4 --depth 2 --size 1M --op " + op};
  INFO(op << ": " << r.ran.output);
  REQUIRE(r.ran.exit_status == 0);
  CHECK(r.value("operations") == 4);
}

TEST_CASE("cordma-perf goes on for as long as it is told", "[tools][device]") {
  const local_run r{"--duration 0.05"};
  INFO(r.ran.output);
  REQUIRE(r.ran.exit_status == 0);
  CHECK(r.value("seconds") >= 0.05);
  CHECK(r.value("operations") > 0);
}

TEST_CASE("cordma-perf compares each operation with raw verbs, by turns", "[tools][device]") {
  const auto what = GENERATE(table<std::string, std::string>({{"write", "1"},
                                                              {"read", "7"},
                                                              {"send", "7"},
                                                              {"write-imm", "1"},
                                                              {"cas", "1"},
                                                              {"faa", "7"},
                                                              {"rpc", "1"},
                                                              {"stream", "7"},
                                                              {"ud", "1"},
                                                              {"multicast", "7"},
                                                              {"uc-write", "7"},
                                                              {"uc-send", "7"},
                                                              {"uc-write-imm", "1"}}));
  const auto& [op, depth] = what;
  const local_run r{"--baseline --operations 210 --depth " + depth + " --op " + op};
  INFO(op << ": " << r.ran.output << r.json);
  REQUIRE(r.ran.exit_status == 0);
  CHECK_THAT(r.ran.output, Contains("ratio") && Contains("mode busy"));
  CHECK(r.value("operations") == 210);
  CHECK(r.value("rounds") >= 41);
  CHECK(r.value("ratio") > 0);
  CHECK(r.value("ratio_p25") <= r.value("ratio_p75"));
  CHECK(r.values("p50").size() == 2);
  CHECK_THAT(r.json, Contains("\"server_cpu_us\": null"));
  CHECK(r.parse("out.json").exit_status == 0);
}

TEST_CASE("cordma-perf measures XRC, or names the device that has none", "[tools][device]") {
  const std::string how = GENERATE("--mode event", "--mode adaptive", "--baseline");
  const local_run r{"--operations 300 --depth 7 --op xrc " + how};
  INFO(how << ": " << r.ran.output << r.json);
  if (cordma::test::is_rxe()) {
    CHECK(r.ran.exit_status != 0);
    CHECK_THAT(r.ran.output, Contains("IBV_DEVICE_XRC"));
  } else {
    REQUIRE(r.ran.exit_status == 0);
    CHECK_THAT(r.ran.output, Contains("\nxrc "));
    CHECK(r.value("operations_per_second") > 0);
  }
}

TEST_CASE("cordma-perf compares for longer in more rounds, each as short", "[tools][device]") {
  const local_run r{"--baseline --duration 0.9"};
  INFO(r.ran.output);
  REQUIRE(r.ran.exit_status == 0);
  CHECK(r.value("rounds") == 45);
}

TEST_CASE("cordma-perf draws latency against load", "[tools][device]") {
  temporary_folder folder;
  const std::string file = (folder.path / "out.svg").string();
  const local_run r{"--operations 50 --depth 8 --plot " + file};
  INFO(r.ran.output);
  REQUIRE(r.ran.exit_status == 0);
  CHECK(r.values("depth") == std::vector<double>{1, 2, 4, 8});
  CHECK(r.parse(file).exit_status == 0);
  std::ifstream drawing{file};
  const std::string svg{std::istreambuf_iterator<char>{drawing}, {}};
  CHECK_THAT(svg,
             Contains("write 64") && Contains("p50") && Contains("p99") && Contains(device_name()));
}

TEST_CASE("cordma-perf prints each line of a sweep when it is measured, into a pipe, too",
          "[tools][device]") {
  background running{
      {CORDMA_PERF, "--local", "--device", device_name(), "--size", "8:64", "--duration", "0.7"}};
  const std::string first = running.line_after("write ");
  running.kill();
  INFO(first);
  CHECK_THAT(first, Contains(" 8 "));
  const std::string rest = running.rest();
  INFO(rest);
  CHECK(std::ranges::count(rest, '\n') < 3);
}

TEST_CASE("cordma-perf says how far it is: within a second on a terminal only", "[tools][device]") {
  const std::string command = CORDMA_PERF " --local --duration 0.7 --device " + device_name();
  const outcome seen = run_on_terminal(command);
  INFO(seen.output);
  CHECK(seen.exit_status == 0);
  CHECK_THAT(seen.output, Contains(" operations, ") && Contains(" a second"));
  const outcome unseen = run(command);
  INFO(unseen.output);
  CHECK(unseen.exit_status == 0);
  CHECK_THAT(unseen.output, !Contains(" a second"));
  const outcome compared = run_on_terminal(command + " --baseline --operations 41");
  INFO(compared.output);
  CHECK(compared.exit_status == 0);
  CHECK_THAT(compared.output, Contains("round 41 of 41"));
}

TEST_CASE("cordma-perf says in one line what it does not understand", "[tools]") {
  struct wrong {
    const char* arguments;
    const char* words;
  };
  for (const wrong& w : {wrong{"", "--local"},
                         {"--local --op fly", "--op 'fly': it is one of write, read"},
                         {"--local --size 7", "--size 7: it goes from 8 to 1G"},
                         {"--local --size 2G", "--size 2G"},
                         {"--local --size 64:8", "'64:8'"},
                         {"--local --size x", "--size 'x'"},
                         {"--local --depth 1:2K", "--depth 2K"},
                         {"--local --mode manual", "--mode 'manual'"},
                         {"--local --op faa --size 64", "leave --size out"},
                         {"--local --threads 2 --connections 1", "fewer --threads"},
                         {"--local --duration 0", "--duration '0'"},
                         {"--local --operations -1", "--operations"},
                         {"--local --baseline --mode event", "--mode event"},
                         {"--local --baseline --connections 2", "--connections 2"},
                         {"--local --baseline --threads 2", "--threads 2: the raw loop"},
                         {"--local --nonsense", "--nonsense"},
                         {"client", "HOST"},
                         {"client --baseline 127.0.0.1", "--baseline"},
                         {"client 127.0.0.1:x", "127.0.0.1:x"},
                         {"server --port 99999", "99999"}}) {
    const outcome ran = run(std::string{CORDMA_PERF " "} + w.arguments);
    INFO(w.arguments << ": " << ran.output);
    CHECK(ran.exit_status != 0);
    CHECK_THAT(ran.output, Contains(w.words) && Catch::StartsWith("cordma-perf: "));
    CHECK(std::ranges::count(ran.output, '\n') == 1);
  }
}

TEST_CASE("cordma-perf says in one line what it cannot do", "[tools][device]") {
  struct failing {
    std::string arguments;
    const char* words;
  };
  const std::string on = " --device " + device_name();
  for (const failing& f : {failing{"--local --device no_such_device", "no_such_device"},
                           failing{"--local --baseline --device no_such_device", "no_such_device"},
                           failing{"--local --size 1G --connections 4" + on, "takes 4096 MiB"},
                           // Before anything is measured: nothing else is printed.
                           failing{"--local --operations 9 --json /nowhere/a" + on,
                                   "/nowhere/a: cannot be written: No such file"},
                           failing{"--local --operations 9 --plot /nowhere/b" + on,
                                   "/nowhere/b: cannot be written: No such file"},
                           // Port 1 is privileged, and nothing listens there.
                           failing{"client 127.0.0.1:1" + on, "nobody listens there"},
                           failing{"client no.such.host.invalid" + on, "no.such.host.invalid"},
                           failing{"server --host 192.0.2.1 --port 0" + on, "192.0.2.1"}}) {
    const outcome ran = run(CORDMA_PERF " " + f.arguments);
    INFO(f.arguments << ": " << ran.output);
    CHECK(ran.exit_status == 1);
    CHECK_THAT(ran.output, Contains(f.words) && Catch::StartsWith("cordma-perf: "));
    CHECK(std::ranges::count(ran.output, '\n') == 1);
  }
}

TEST_CASE("cordma-perf explains itself", "[tools]") {
  const outcome ran = run(CORDMA_PERF " --help");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Contains("--baseline") && Contains("--plot") && Contains("--memory") &&
                             Contains("--collectives") && Contains("--tune"));
}
