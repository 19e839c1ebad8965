#include "support/skip.hpp"
#include "support/temporary_folder.hpp"
#include "support/thread_sanitizer.hpp"

#include <cordma/coro/sleep.hpp>
#include <cordma/sim.hpp>

#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using Catch::Contains;

#if defined(__SANITIZE_ADDRESS__)
#define HAS_LEAK_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_LEAK_SANITIZER 1
#endif
#endif

namespace {

bool has_lost_memory = false;

}  // namespace

#ifndef HAS_LEAK_SANITIZER
extern "C" int __lsan_do_recoverable_leak_check();  // NOLINT(bugprone-reserved-identifier)
/// LeakSanitizer in a program that has none.
int __lsan_do_recoverable_leak_check() {  // NOLINT(bugprone-reserved-identifier)
  return has_lost_memory ? 1 : 0;
}
#endif

namespace {

/// Lets a host named "worker" sleep a random number of times.
void do_something(sim::world& w) {
  w.add_host("worker").start([&](runtime&) -> task<> {
    for (std::uint64_t n = w.random(5); n > 0; --n) co_await sleep_for(1ms);
  });
  w.run();
}

void fail_in_one_of_50(sim::world& w) {
  do_something(w);
  if (w.seed() % 50 == 37) w.fail("the world is at seed " + std::to_string(w.seed()));
}

/// Works for 300 ms. Notes if an iteration of the executor is late: no step takes so long, so that
/// only a fault, a pause, makes it late.
task<> work(sim::world& w, bool& is_late) {
  for (int n = 0; n < 300; ++n) {
    const time_point due = w.now() + 1ms;
    co_await sleep_for(1ms);
    is_late = is_late || w.now() > due + 10ms;
  }
}

void fail_when_late(sim::world& w) {
  bool is_late = false;
  w.add_host("worker").start([&](runtime&) { return work(w, is_late); });
  w.run();
  if (is_late) w.fail("the worker is late");
}

void crash_in_one_of_50(sim::world& w) {
  do_something(w);
  if (w.seed() % 50 == 12) ::raise(SIGSEGV);
}

/// Lets a host work, and lose its port for a moment. Returns true if it was late.
bool is_late(sim::world& w) {
  bool was_late = false;
  sim::host& worker = w.add_host("worker");
  worker.start([&](runtime&) { return work(w, was_late); });
  w.after(10ms, [&] { worker.set_port(false); });
  w.after(20ms, [&] { worker.set_port(true); });
  w.run();
  return was_late;
}

void abort_when_late(sim::world& w) {
  if (is_late(w)) std::abort();
}

/// Reads what is nowhere.
__attribute__((no_sanitize("undefined"))) int read_null() {
  static int* volatile nowhere = nullptr;
  return *nowhere;
}

void read_null_when_late(sim::world& w) {
  if (is_late(w)) w.fail("null has " + std::to_string(read_null()));
}

void hang(sim::world& w) {
  static_cast<void>(is_late(w));
  for (;;) ::pause();
}

/// Aborts if the worker is late, and reads null otherwise.
void die_of_either(sim::world& w) {
  if (is_late(w)) std::abort();
  w.fail("null has " + std::to_string(read_null()));
}

/// Kills the process while its hosts end.
void die_at_the_end(sim::world& w) {
  struct bomb {
    bomb() = default;
    bomb(const bomb&) = delete;
    ~bomb() { std::abort(); }
  };
  w.add_host("worker").start([](runtime&) -> task<> {
    const bomb last;
    co_await sleep_for(1h);
  });
  w.after(1ms, [&] { w.fail("the world is at its end"); });
  w.run();
}

char* volatile lost_memory = nullptr;

[[gnu::noinline]] void lose_memory() {
  lost_memory = new char[77];
  lost_memory = nullptr;
  has_lost_memory = true;
}

void leak_in_one_of_50(sim::world& w) {
  do_something(w);
  if (w.seed() % 50 == 21) lose_memory();
}

/// Has more events in each run of a process.
void remember_runs(sim::world& w) {
  static int runs = 0;
  ++runs;
  sim::host& worker = w.add_host("worker");
  worker.start([](runtime&) -> task<> { co_await sleep_for(1h); });
  w.after(runs * 1ms, [&] { worker.kill(); });
  w.run();
}

const std::array<sim::scenario, 11> scenarios{{
    {"sound", "never fails", &do_something, true},
    {"rare", "fails in one seed of 50", &fail_in_one_of_50},
    {"late", "fails when it is late", &fail_when_late},
    {"crash", "crashes in one seed of 50", &crash_in_one_of_50},
    {"memory", "depends on earlier runs", &remember_runs},
    {"abort", "aborts when it is late", &abort_when_late},
    {"null", "reads null when it is late", &read_null_when_late},
    {"hang", "hangs", &hang},
    {"either", "aborts or reads null", &die_of_either},
    {"bomb", "aborts when its host ends", &die_at_the_end},
    {"leak", "leaks memory in one seed of 50", &leak_in_one_of_50},
}};

struct ending {
  int status = -1;   ///< negative: the signal that has ended the process
  std::string text;  ///< on the two outputs
};

/// Returns true if this process may ask for fixed addresses: a container may forbid it.
bool may_fix_addresses() {
  const auto now = unsigned(::personality(0xffffffff));
  const bool may = ::personality(now | ADDR_NO_RANDOMIZE) >= 0;
  ::personality(now);
  return may;
}

bool has_fixed_addresses() {
  const int now = ::personality(0xffffffff);
  return now >= 0 && (now & ADDR_NO_RANDOMIZE) != 0;
}

/// Runs scenarios in a child, as a program with these arguments does.
/// \param fixes_addresses  false: run_scenarios has to do that, and executes the program again
ending run(std::vector<std::string> arguments, std::span<const sim::scenario> all = scenarios,
           bool fixes_addresses = true) {
  arguments.insert(arguments.begin(), "simulate");
  std::FILE* const output = std::tmpfile();
  REQUIRE(output != nullptr);
  std::fflush(nullptr);  // The child would write what is kept here, too.
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(::fileno(output), STDOUT_FILENO);
    ::dup2(::fileno(output), STDERR_FILENO);
    for (const int caught : {SIGABRT, SIGSEGV}) ::signal(caught, SIG_DFL);
    const auto now = unsigned(::personality(0xffffffff));
    ::personality(fixes_addresses ? now | ADDR_NO_RANDOMIZE : now & ~unsigned{ADDR_NO_RANDOMIZE});
    std::vector<const char*> argv;
    for (const std::string& one : arguments) argv.push_back(one.c_str());
    argv.push_back(nullptr);
    const int status = sim::run_scenarios(int(arguments.size()), argv.data(), all);
    std::fflush(nullptr);
    ::_exit(status);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  ending made{.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), .text = {}};
  std::rewind(output);
  for (int c; (c = std::fgetc(output)) != EOF;) made.text += char(c);
  std::fclose(output);
  return made;
}

/// Returns the arguments of the last line that says how to see the finding again.
std::vector<std::string> again_of(const std::string& text) {
  const std::size_t line = text.rfind("Again: ");
  REQUIRE(line != std::string::npos);
  const std::string arguments = text.substr(line + 7, text.find('\n', line) - line - 7);
  std::vector<std::string> all;
  const std::regex word{"'([^']*)'|(\\S+)"};
  for (std::sregex_iterator at{arguments.begin(), arguments.end(), word};
       at != std::sregex_iterator{}; ++at)
    all.push_back((*at)[1].matched ? (*at)[1] : (*at)[2]);
  return all;
}

}  // namespace

TEST_CASE("nothing is found of a sound scenario, and its seeds are counted", "[sim]") {
  const ending seen = run({"sound", "--seeds", "1..250", "--profile", "harsh", "--jobs", "2"});
  INFO(seen.text);
  CHECK(seen.status == 0);
  // Three of them are played again.
  CHECK_THAT(seen.text, Contains("253 seeds from 1, "));
  CHECK_THAT(seen.text, !Contains("FOUND"));
}

TEST_CASE("a seed that fails is found among others, and can be seen again", "[sim]") {
  for (const char* const jobs : {"1", "2"}) {
    const ending seen = run({"rare", "--seeds", "1..50", "--profile", "none", "--jobs", jobs});
    INFO(seen.text);
    CHECK(seen.status == 1);
    CHECK_THAT(seen.text, Contains("FOUND: the world is at seed 37\n"));
    CHECK_THAT(seen.text, Contains("Again: rare --seed 37 --profile none\n"));
    const std::vector<std::string> again = again_of(seen.text);
    CHECK(again == std::vector<std::string>{"rare", "--seed", "37", "--profile", "none", "--plan",
                                            "fault=none network=none schedule=none"});
    const ending second = run(again);
    CHECK(second.status == 1);
    CHECK_THAT(second.text, Contains("FOUND: the world is at seed 37\n"));
  }
}

TEST_CASE("a finding is shrunk to the faults that it needs, and these show it again", "[sim]") {
  const ending seen = run({"late", "--seeds", "1..50", "--profile", "harsh", "--jobs", "1"});
  INFO(seen.text);
  CHECK(seen.status == 1);
  const std::vector<std::string> again = again_of(seen.text);
  REQUIRE(again.size() == 7);
  CHECK(std::regex_match(again[6], std::regex{"fault=\\d+(,\\d+)* network=none schedule=none"}));
  const ending second = run(again);
  CHECK(second.status == 1);
  CHECK_THAT(second.text, Contains("FOUND: the worker is late\n") && !Contains("Shrunk"));
  std::vector<std::string> without = again;
  without[6] = "fault=none";
  CHECK(run(without).status == 0);
}

TEST_CASE("a finding is not shrunk if nobody wants that", "[sim]") {
  const ending seen = run({"rare", "--seed", "37", "--profile", "none", "--no-shrink"});
  CHECK(seen.status == 1);
  CHECK_THAT(seen.text, Contains("FOUND: the world is at seed 37\n") && !Contains("--plan"));
}

TEST_CASE("a seed whose process dies is found", "[sim]") {
  const ending seen = run({"crash", "--seeds", "1..50", "--profile", "none"});
  INFO(seen.text);
  CHECK(seen.status == 1);
  CHECK_THAT(seen.text, Contains("FOUND: the process of the seed: it died of SIGSEGV\n"
                                 "seed 12; the last events of each host:\nworker:\n") &&
                            Contains("\nAgain: crash --seed 12 --profile none\n"));
  CHECK(again_of(seen.text).back() == "fault=none network=none schedule=none");
}

TEST_CASE("a seed whose process dies is shrunk as others are, and has its last events", "[sim]") {
  const auto [name, signal] =
      GENERATE(table<const char*, const char*>({{"abort", "SIGABRT"}, {"null", "SIGSEGV"}}));
  const ending seen = run({name, "--seeds", "1..50", "--profile", "harsh", "--jobs", "1"});
  INFO(seen.text);
  CHECK(seen.status == 1);
  const std::regex found{"the process of the seed: it died of " + std::string{signal} +
                         "\nseed \\d+; the last events of each host:\nworker:\n"
                         "( +[0-9.]+ ms  .*\n)*"
                         " +[0-9.]+ ms  its port goes down\n( +[0-9.]+ ms  .*\n)*"
                         " +[0-9.]+ ms  its port comes up\n"};
  // Before it is shrunk and afterwards.
  CHECK(std::distance(std::sregex_iterator{seen.text.begin(), seen.text.end(), found}, {}) == 2);
  const std::vector<std::string> again = again_of(seen.text);
  REQUIRE(again.size() == 7);
  CHECK(std::regex_match(again[6], std::regex{"fault=\\d+(,\\d+)* network=none schedule=none"}));
  const ending second = run(again);
  CHECK(second.status == 1);
  CHECK(std::regex_search(second.text, found));
  std::vector<std::string> without = again;
  without[6] = "fault=none";
  CHECK(run(without).status == 0);
}

TEST_CASE("a seed that hangs has its last events", "[sim]") {
  const ending seen = run({"hang", "--seed", "7", "--profile", "none", "--seed-limit", "1"});
  INFO(seen.text);
  CHECK(seen.status == 1);
  CHECK_THAT(seen.text, Contains("FOUND: the process of the seed: it hung\nseed 7; ") &&
                            Contains(" ms  its port goes down\n"));
  CHECK(again_of(seen.text).back() == "fault=none network=none schedule=none");
}

TEST_CASE("two signals are two faults", "[sim]") {
  const std::string late_seed = again_of(
      run({"abort", "--seeds", "1..50", "--profile", "harsh", "--jobs", "1", "--no-shrink"})
          .text)[2];
  const ending seen = run({"either", "--seed", late_seed, "--profile", "harsh"});
  INFO(seen.text);
  CHECK_THAT(seen.text, Contains("SIGABRT") && !Contains("SIGSEGV"));
  const std::vector<std::string> again = again_of(seen.text);
  REQUIRE(again.size() == 7);
  CHECK_THAT(again[6], !Contains("fault=none"));
}

TEST_CASE("a seed whose process dies while its world ends has its last events", "[sim]") {
  const ending seen = run({"bomb", "--seed", "3", "--profile", "none"});
  INFO(seen.text);
  CHECK_THAT(seen.text, Contains("it died of SIGABRT\nseed 3; the last events of each host:\n"));
}

TEST_CASE("memory that a process has lost is found, and the seed that loses it", "[sim]") {
  const bool is_scarce = GENERATE(false, true);
  const std::string profile = is_scarce ? "scarce" : "none";
  const ending seen = run({"leak", "--seeds", "1..50", "--profile", profile, "--jobs", "1"});
  INFO(seen.text);
  CHECK(seen.status == 1);
  const std::string seeds = is_scarce ? "1..21" : "1..50";
  CHECK_THAT(seen.text, Contains("FOUND: the process of seeds " + seeds +
                                 " leaks memory: see LeakSanitizer's report\nAgain: leak --seeds " +
                                 seeds + " --profile " + profile + "\n") &&
                            Contains(": the process of seeds 21..21 leaks memory"));
  CHECK(again_of(seen.text) == std::vector<std::string>{"leak", "--seed", "21", "--profile",
                                                        profile, "--plan",
                                                        "fault=none network=none schedule=none"});
}

TEST_CASE("a scenario that another run of its process changes is found", "[sim]") {
  for (const char* const seeds : {"1..100", "2..50", "2..3"}) {
    const ending seen = run({"memory", "--seeds", seeds, "--profile", "none"});
    INFO(seen.text);
    CHECK(seen.status == 1);
    CHECK_THAT(seen.text, Contains("FOUND: the seed gives another run in a fresh process\n"
                                   "Again: memory --seed ") &&
                              Contains("The seed alone does not show it."));
  }
}

TEST_CASE("all scenarios are played by all profiles that they are for", "[sim]") {
  const std::span all = std::span{scenarios}.first(2);
  const ending seen = run({"--seeds", "1..10"}, all);
  CHECK(seen.status == 0);
  CHECK_THAT(seen.text, Contains("51 seeds from 1, "));  // No hostile ones of "rare".
  const ending hostile = run({"--seeds", "1..10", "--profile", "hostile"}, all);
  CHECK_THAT(hostile.text, Contains("21 seeds from 1, "));
  const ending first =
      run({"rare", "--seeds", "1..10", "--profile", "hostile", "--profile", "none"});
  CHECK_THAT(first.text, Contains("11 seeds from 1, "));
}

TEST_CASE("the greatest seed is the last one", "[sim]") {
  const ending seen = run({"sound", "--seed", "18446744073709551615", "--profile", "none"});
  CHECK(seen.status == 0);
  CHECK_THAT(seen.text, Contains("1 seeds from 18446744073709551615, "));
}

TEST_CASE("known seeds are played first", "[sim]") {
  const test::temporary_folder folder;
  const std::string file = folder.path / "known.txt";
  std::ofstream{file} << "# SCENARIO PROFILE SEED\n\nsound harsh 3\nrare none 87\n";
  const ending seen = run({"sound", "--seeds", "1..100", "--profile", "harsh", "--known", file});
  INFO(seen.text);
  CHECK(seen.status == 1);
  CHECK_THAT(seen.text, Contains("FOUND: the world is at seed 87\n") &&
                            Contains("\nAgain: rare --seed 87 --profile none\n"));
  std::ofstream{file} << "sound harsh 3\nrare none 88\n";
  const ending sound = run({"sound", "--seeds", "1..10", "--profile", "harsh", "--known", file});
  CHECK(sound.status == 0);
  CHECK_THAT(sound.text, Contains("13 seeds from 1, "));
}

TEST_CASE("a wrong command line ends the program with 2, and a text that names the value",
          "[sim]") {
  const ending seen = run({"rare", "--seed", "many"});
  CHECK(seen.status == 2);
  CHECK_THAT(seen.text, Catch::StartsWith("simulate: ") && Contains("'many'"));
}

TEST_CASE("help lists the scenarios, and ends the program with 0", "[sim]") {
  const ending seen = run({"--help"});
  CHECK(seen.status == 0);
  for (const sim::scenario& s : scenarios)
    CHECK_THAT(seen.text, Contains(s.name) && Contains(s.what));
}

TEST_CASE("a picture of a seed is written, whose finding is told", "[sim]") {
  const test::temporary_folder folder;
  const std::string file = folder.path / "seed.svg";
  const ending sound = run({"sound", "--seed", "1", "--profile", "none", "--trace", file});
  CHECK(sound.status == 0);
  CHECK(sound.text == "nothing was found\n");
  std::ifstream in{file};
  const std::string svg{std::istreambuf_iterator<char>{in}, {}};
  CHECK_THAT(svg, Catch::StartsWith("<svg ") && Contains("worker") && Catch::EndsWith("</svg>\n"));
  const ending found = run({"rare", "--seed", "37", "--profile", "none", "--trace", file});
  CHECK(found.status == 1);
  CHECK_THAT(found.text, Catch::StartsWith("the world is at seed 37\n"));
}

TEST_CASE("a picture of a seed whose process dies is written", "[sim]") {
  if (CORDMA_TEST_THREAD_SANITIZER != 0) CORDMA_SKIP("a handler of a signal may not allocate");
  const test::temporary_folder folder;
  const std::string file = folder.path / "seed.svg";
  const ending died = run({"crash", "--seed", "12", "--profile", "none", "--trace", file});
  CHECK(died.status == -SIGSEGV);
  CHECK_THAT(died.text,
             Catch::StartsWith("the process of the seed: it died of SIGSEGV\nseed 12; "));
  std::ifstream of_dead{file};
  const std::string drawn{std::istreambuf_iterator<char>{of_dead}, {}};
  CHECK_THAT(drawn,
             Catch::StartsWith("<svg ") && Contains("worker") && Catch::EndsWith("</svg>\n"));
  const std::string nowhere = folder.path / "none" / "seed.svg";
  const ending refused = run({"sound", "--seed", "1", "--profile", "none", "--trace", nowhere});
  CHECK(refused.status == 2);
  CHECK_THAT(refused.text, Contains("--trace " + nowhere) && Contains("No such file"));
}

TEST_CASE("this program has the same addresses in each run", "[.addresses]") {
  CHECK(has_fixed_addresses());
}

TEST_CASE("a program runs again without random addresses", "[sim]") {
  // The program that is executed again is this one, with other arguments than a simulation's.
  const ending seen = run({"[.addresses]"}, scenarios, false);
  INFO(seen.text);
  CHECK(seen.status == (may_fix_addresses() ? 0 : 2));
  CHECK_THAT(seen.text,
             Contains(may_fix_addresses() ? "All tests passed (1 assertion in 1 test case)"
                                          : "no scenario '[.addresses]'"));
}
