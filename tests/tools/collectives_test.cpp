// cordma-perf --collectives as people run it: ranks started here, or by a launcher's variables.

#include "support/commands.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/temporary_folder.hpp"
#include "tools/folders.hpp"

#include "group/algorithm_table.hpp"
#include "group/meeting_kinds.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <string>
#include <vector>

using namespace cordma::test;
using namespace std::string_literals;
using Catch::Matchers::Contains;

namespace {

constexpr auto operations = {"barrier", "broadcast",  "scatter",        "gather",     "all_gather",
                             "reduce",  "all_reduce", "reduce_scatter", "all_to_all", "scan"};

std::string command(const std::string& arguments) {
  return CORDMA_PERF " --collectives --device " + device_name() + ' ' + arguments +
         (arguments.find("--duration") == std::string::npos ? " --duration 0.002" : "");
}

/// Gives what follows `key` in a text of JSON, each time, without quotes.
std::vector<std::string> values(const std::string& json, const std::string& key) {
  std::vector<std::string> all;
  const std::regex pattern{'"' + key + "\": \"?([^\",}\n]*)"};
  const std::sregex_iterator none;
  for (std::sregex_iterator at{json.begin(), json.end(), pattern}; at != none; ++at)
    all.push_back((*at)[1]);
  return all;
}

bool is_json(const std::filesystem::path& file) {
  return run("python3 -m json.tool " + file.string()).exit_status == 0;
}

std::string content(const std::filesystem::path& file) {
  std::ifstream in{file};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// A rank that a launcher starts: the variables of torchrun, and where rank 0 is.
std::unique_ptr<background> launched(unsigned rank, unsigned size,
                                     const std::vector<std::string>& arguments) {
  static unsigned meetings = 0;
  if (rank == 0) ++meetings;
  std::vector<std::string> words{"/usr/bin/env",
                                 "RANK=" + std::to_string(rank),
                                 "WORLD_SIZE=" + std::to_string(size),
                                 "CORDMA_MEETING=unix:@perf-test-" + std::to_string(::getpid()) +
                                     '-' + std::to_string(meetings),
                                 CORDMA_PERF,
                                 "--collectives",
                                 "--device",
                                 device_name()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return std::make_unique<background>(std::move(words));
}

/// Gives the last line of a text.
std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

TEST_CASE("cordma-perf measures each collective operation among ranks that it starts",
          "[tools][device]") {
  const std::string ranks = GENERATE("2", "4");
  const outcome ran = run(command("--sizes 8,16K --ranks " + ranks));
  INFO(ran.output);
  REQUIRE(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::StartsWith("device " + device_name() + ", mode event, " + ranks));
  for (const char* const operation : operations)
    CHECK_THAT(ran.output, Contains("\n"s + operation + ' '));
  CHECK(std::ranges::count(ran.output, '\n') == 2 + 1 + 9 * 2);
}

TEST_CASE("cordma-perf measures collectives in each completion mode", "[tools][device]") {
  const std::string mode = GENERATE("busy", "adaptive");
  const outcome ran = run(command("--ranks 2 --operation all_reduce --sizes 8,64K --mode " + mode));
  INFO(ran.output);
  REQUIRE(ran.exit_status == 0);
  CHECK_THAT(ran.output, Contains("mode " + mode));
}

TEST_CASE("cordma-perf measures the algorithms of a collective that it is told",
          "[tools][device]") {
  const outcome ran = run(
      command("--ranks 3 --operation all_reduce,all_gather --sizes 1K:4K --algorithm ring --json"));
  INFO(ran.output);
  REQUIRE(ran.exit_status == 0);
  CHECK(values(ran.output, "algorithm") == std::vector<std::string>(6, "ring"));
  CHECK(values(ran.output, "size_bytes") ==
        std::vector<std::string>{"1024", "2048", "4096", "1032", "2052", "4104"});
  for (const std::string& us : values(ran.output, "microseconds")) CHECK(std::stod(us) > 0);
  for (const std::string& rate : values(ran.output, "gigabytes_per_second"))
    CHECK(std::stod(rate) >= 0);
}

TEST_CASE("cordma-perf writes what it measured of collectives as JSON, to a file, too",
          "[tools][device]") {
  const temporary_folder folder;
  const auto file = folder.path / "out.json";
  const outcome ran = run(
      command("--ranks 2 --operation barrier --operation scan --sizes 64 --json " + file.string()));
  INFO(ran.output);
  REQUIRE(ran.exit_status == 0);
  CHECK_THAT(ran.output, Contains("\nscan "));
  CHECK(is_json(file));
  const std::string json = content(file);
  CHECK(values(json, "operation") == std::vector<std::string>{"barrier", "scan"});
  CHECK(values(json, "gigabytes_per_second").front() == "null");
  CHECK(values(json, "ranks") == std::vector<std::string>{"2"});
}

TEST_CASE("cordma-perf finds a table of algorithms that a group can read", "[tools][device]") {
  const temporary_folder folder;
  const auto file = folder.path / "out.json";
  const outcome ran = run(command(
      "--ranks 4 --tune --operation broadcast,all_reduce --sizes 64:1K --json " + file.string()));
  INFO(ran.output);
  REQUIRE(ran.exit_status == 0);
  CHECK(is_json(file));
  const std::string json = content(file);
  CHECK(values(json, "size_bytes").size() == 5 * (3 + 3));
  const std::vector<std::string> built_in = values(json, "is_built_in");
  CHECK(std::ranges::count(built_in, "true"s) == 5 * 2);
  const std::size_t at = json.find("\"algorithms\": \"");
  REQUIRE(at != std::string::npos);
  const std::size_t begin = at + std::string{"\"algorithms\": \""}.size();
  const std::string text = json.substr(begin, json.find('"', begin) - begin);
  CHECK_NOTHROW(cordma::detail::algorithm_table{text});
  CHECK(std::size_t(std::ranges::count(text, '=')) == values(json, "gain").size());
  CHECK(last_line(ran.output) ==
        (text.empty() ? "The built-in table is as fast as any, on 4 ranks." : text));
}

TEST_CASE("rank 0 of cordma-perf decides what all ranks measure", "[tools][device]") {
  const auto first = launched(0, 2, {"--operation", "all_reduce", "--sizes", "64"});
  const auto other = launched(1, 2, {"--operation", "scan", "--sizes", "8:1K"});
  const outcome printed = first->end();
  INFO(printed.output);
  CHECK(printed.exit_status == 0);
  CHECK_THAT(printed.output, Contains("\nall_reduce ") && !Contains("scan"));
  const outcome silent = other->end();
  CHECK(silent.exit_status == 0);
  CHECK(silent.output.empty());
}

TEST_CASE("ranks of cordma-perf that mpirun starts measure collectives", "[tools][device]") {
  if (!cordma::detail::has_pmix()) CORDMA_SKIP("there is no PMIx");
  if (run("mpirun --version").exit_status != 0) CORDMA_SKIP("there is no mpirun");
  const outcome ran =
      run("env -u RANK -u WORLD_SIZE OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
          "timeout -s KILL 60 mpirun --oversubscribe -n 3 " +
          command("--operation barrier,reduce --sizes 64"));
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Contains(", 3 ranks\n") && Contains("\nreduce "));
  CHECK(std::ranges::count(ran.output, '\n') == 4);
}

TEST_CASE("a rank of cordma-perf that is killed is named in one line, with what to do",
          "[tools][device]") {
  const unsigned killed = GENERATE(0u, 2u);
  std::vector<std::unique_ptr<background>> ranks;
  for (unsigned r = 0; r < 4; ++r)
    ranks.push_back(launched(r, 4, {"--duration", "0.05", "--sizes", "4:1M"}));
  ranks[0]->line_after("barrier ");
  ranks[killed]->kill();
  const std::string named = "cordma-perf: rank " + std::to_string(killed) + " has ended, or ";
  for (unsigned r = 0; r < 4; ++r) {
    if (r == killed) continue;
    const outcome ran = ranks[r]->end();
    INFO("rank " << r << ": " << ran.output);
    CHECK(ran.exit_status == 1);
    if (r == (killed == 0 ? 1 : 0)) {
      CHECK_THAT(last_line(ran.output),
                 Catch::StartsWith(named) && Contains("start all ranks again"));
    } else {
      CHECK(ran.output.empty());
    }
  }
}

TEST_CASE("cordma-perf names a rank that it started, and that was killed", "[tools][device]") {
  background running{{CORDMA_PERF, "--collectives", "--device", device_name(), "--ranks", "4",
                      "--duration", "0.05", "--sizes", "4:1M"}};
  running.line_after("barrier ");
  std::ifstream children{"/proc/" + std::to_string(running.pid()) + "/task/" +
                         std::to_string(running.pid()) + "/children"};
  const std::vector<pid_t> pids{std::istream_iterator<pid_t>{children}, {}};
  REQUIRE(pids.size() == 4);
  ::kill(pids[2], SIGKILL);
  const outcome ran = running.end();
  INFO(ran.output);
  CHECK(ran.exit_status == 1);
  CHECK(last_line(ran.output) == "cordma-perf: rank 2 was ended by signal 9 (Killed): start again");
  CHECK_THAT(ran.output, !Contains("has ended, or its host"));
  for (const pid_t pid : pids) CHECK(::kill(pid, 0) == -1);
}

TEST_CASE("cordma-perf says in one line what it cannot measure of collectives", "[tools][device]") {
  struct wrong {
    const char* arguments;
    const char* words;
    int exit_status = 2;
  };
  for (const wrong& w :
       {wrong{"--operation fly", "--operation 'fly': it is one of barrier, broadcast"},
        {"--sizes x", "--sizes 'x'"},
        {"--sizes 2G", "--sizes 2G: it goes from 4 to 1G"},
        {"--mode manual", "--mode 'manual'"},
        {"--duration 0", "--duration '0'"},
        {"--ranks 1", "--ranks 1: it goes from 2 to 64"},
        {"--algorithm ring --operation scan", "--algorithm 'ring': scan has recursive_doubling"},
        {"--tune --algorithm ring", "--algorithm 'ring': --tune"},
        {"--nonsense", "--nonsense"},
        {"", "one rank has nobody to talk to: say --ranks 4"},
        {"--ranks 2 --algorithm two_level", "--algorithm 'two_level': barrier has it for several"},
        {"--ranks 2 --tune --operation scan", "--tune: only one algorithm"},
        {"--ranks 2 --sizes 1M --memory 1M", "takes 3M on a rank, and --memory gives 1M"},
        {"--ranks 2 --json /nowhere/a", "/nowhere/a: cannot be written", 1}}) {
    const outcome ran = run("env -u RANK -u WORLD_SIZE " + command(w.arguments));
    INFO(w.arguments << ": " << ran.output);
    CHECK(ran.exit_status == w.exit_status);
    CHECK_THAT(ran.output, Contains(w.words) && Catch::StartsWith("cordma-perf: "));
    CHECK(std::ranges::count(ran.output, '\n') == 1);
  }
  const outcome ran = run(CORDMA_PERF " --collectives --ranks 2 --device no_such_device");
  INFO(ran.output);
  CHECK(ran.exit_status == 1);
  CHECK_THAT(ran.output, Contains("no_such_device"));
  CHECK(std::ranges::count(ran.output, '\n') == 1);
}
