#include "sim/command_line.hpp"

#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

using namespace cordma;
using Catch::Contains;
using sim::detail::command_line;
using sim::detail::plan;

namespace {

const std::array<sim::scenario, 2> two_scenarios{
    {{"first", "is one", [](sim::world&) {}}, {"second", "is another", [](sim::world&) {}}}};

command_line parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "simulate");
  arguments.push_back(nullptr);
  return {int(arguments.size()) - 1, arguments.data(), two_scenarios};
}

std::string refusal_of_line(const std::vector<const char*>& arguments) {
  try {
    static_cast<void>(parse(arguments));
  } catch (const std::system_error& e) {
    CHECK(e.code() == std::errc::invalid_argument);
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("without arguments, all scenarios are played with all profiles for a minute", "[sim]") {
  const command_line made = parse({});
  CHECK(made.scenarios == std::vector{&two_scenarios[0], &two_scenarios[1]});
  REQUIRE(made.profiles.size() == 4);
  CHECK(made.profiles[0].wanted == sim::faults::none());
  CHECK(made.profiles[1].wanted == sim::faults::harsh());
  CHECK(made.profiles[2].wanted == sim::faults::hostile());
  CHECK(made.profiles[3].wanted == sim::faults::scarce());
  CHECK(made.minutes == 1);
  CHECK_FALSE(made.last_seed.has_value());
  CHECK(made.jobs >= 1);
  CHECK(made.shrinks);
  CHECK(made.kept == plan{});
}

TEST_CASE("a command line says what is played", "[sim]") {
  const command_line made = parse({"second", "--profile", "harsh", "--seeds", "7..9", "--jobs", "3",
                                   "--plan", "fault=3 network=none", "--minutes", "0.5"});
  CHECK(made.scenarios == std::vector{&two_scenarios[1]});
  REQUIRE(made.profiles.size() == 1);
  CHECK(made.profiles[0].name == "harsh");
  CHECK(made.first_seed == 7);
  CHECK(made.last_seed == 9);
  CHECK(made.jobs == 3);
  CHECK(made.kept.text() == "fault=3 network=none schedule=all");
  CHECK_FALSE(made.shrinks);
  CHECK(made.minutes == 0.5);
}

TEST_CASE("an option takes one value, and a scenario may stand behind it", "[sim]") {
  const command_line made = parse({"--profile", "none", "--profile", "harsh", "second"});
  CHECK(made.profiles.size() == 2);
  CHECK(made.scenarios == std::vector{&two_scenarios[1]});
}

TEST_CASE("one seed is a range of one", "[sim]") {
  const command_line made = parse({"--seed", "18446744073709551615"});
  CHECK(made.first_seed == UINT64_MAX);
  CHECK(made.last_seed == UINT64_MAX);
}

TEST_CASE("the refusal of a command line names the wrong value", "[sim]") {
  CHECK_THAT(refusal_of_line({"third"}), Contains("no scenario 'third': first, second"));
  CHECK_THAT(refusal_of_line({"--profile", "hard"}),
             Contains("no profile 'hard': none, harsh, hostile, scarce"));
  CHECK_THAT(refusal_of_line({"--seed", "many"}), Contains("a seed is a number, not 'many'"));
  CHECK_THAT(refusal_of_line({"--seed", "-1"}), Contains("a seed is a number, not '-1'"));
  CHECK_THAT(refusal_of_line({"--seeds", "5"}), Contains("--seeds is A..B, not '5'"));
  CHECK_THAT(refusal_of_line({"--seeds", "5..x"}), Contains("a seed is a number, not 'x'"));
  CHECK_THAT(refusal_of_line({"--seeds", "5..3"}), Contains("--seeds goes up, not '5..3'"));
  CHECK_THAT(refusal_of_line({"--seed", "1", "--seeds", "1..3"}), Contains("--seed"));
  CHECK_THAT(refusal_of_line({"--minutes", "-2"}), Contains("--minutes is more than 0, not -2"));
  CHECK_THAT(refusal_of_line({"--minutes", "long"}), Contains("--minutes"));
  CHECK_THAT(refusal_of_line({"--jobs", "0"}), Contains("--jobs is at least 1, not 0"));
  for (const char* const limit : {"0", "-1", "nan", "2e6"})
    CHECK_THAT(refusal_of_line({"--seed-limit", limit}),
               Contains("--seed-limit is from 0.001 to 1000000 seconds, not "));
  CHECK_THAT(refusal_of_line({"--plan", "fault=x"}), Contains("'x'"));
  CHECK_THAT(refusal_of_line({"--trace", "x.svg"}),
             Contains("--trace needs one scenario, one --profile"));
  CHECK_THAT(refusal_of_line({"--known", "/dev/null/known"}),
             Contains("'/dev/null/known' cannot be read"));
  CHECK_THAT(refusal_of_line({"--unknown"}), Contains("--unknown"));
}

TEST_CASE("seeds without an end are played for some minutes", "[sim]") {
  const command_line made = parse({"--seeds", "7..", "--minutes", "3"});
  CHECK(made.first_seed == 7);
  CHECK_FALSE(made.last_seed.has_value());
  CHECK(made.minutes == 3);
}

TEST_CASE("the seeds of a file are known, beside comments and empty lines", "[sim]") {
  const test::temporary_folder folder;
  const std::string file = folder.path / "known.txt";
  std::ofstream{file} << "# SCENARIO PROFILE SEED\n\nsecond harsh 3\n  first none 87\n";
  const command_line made = parse({"--known", file.c_str()});
  REQUIRE(made.known.size() == 2);
  CHECK(made.known[0].what == &two_scenarios[1]);
  CHECK(made.known[0].with.name == "harsh");
  CHECK(made.known[0].seed == 3);
  CHECK(made.known[1].what == &two_scenarios[0]);
  CHECK(made.known[1].seed == 87);
}

TEST_CASE("the refusal of a file of seeds names its wrong line", "[sim]") {
  const test::temporary_folder folder;
  const std::string file = folder.path / "known.txt";
  const auto refusal = [&](const char* line) {
    std::ofstream{file} << line << '\n';
    return refusal_of_line({"--known", file.c_str()});
  };
  CHECK_THAT(refusal("first none"),
             Contains(file + ": expected 'SCENARIO PROFILE SEED', not 'first none'"));
  CHECK_THAT(refusal("third none 1"), Contains("no scenario 'third'"));
  CHECK_THAT(refusal("first hard 1"), Contains("no profile 'hard'"));
  CHECK_THAT(refusal("first none x"), Contains("a seed is a number, not 'x'"));
}
