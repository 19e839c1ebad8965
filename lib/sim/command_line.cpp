#include "command_line.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <system_error>
#include <thread>

namespace cordma::sim::detail {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::system_error{EINVAL, std::generic_category(), what};
}

std::uint64_t number_of(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    refuse("a seed is a number, not '" + text + "'");
  return value;
}

command_line::profile profile_of(const std::string& name) {
  if (name == "none") return {name, faults::none()};
  if (name == "harsh") return {name, faults::harsh()};
  if (name == "hostile") return {name, faults::hostile()};
  if (name == "scarce") return {name, faults::scarce()};
  refuse("there is no profile '" + name + "': none, harsh, hostile, scarce");
}

const scenario& scenario_of(const std::string& name, std::span<const scenario> all) {
  const auto found = std::ranges::find(all, name, [](const scenario& s) { return s.name; });
  if (found != all.end()) return *found;
  std::string names;
  for (const scenario& s : all) names += (names.empty() ? "" : ", ") + std::string{s.name};
  refuse("there is no scenario '" + name + "': " + names);
}

std::vector<command_line::known_seed> read_known(const std::string& file,
                                                 std::span<const scenario> all) {
  std::ifstream in{file};
  if (!in) refuse("'" + file + "' cannot be read");
  std::vector<command_line::known_seed> made;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words{line};
    std::string name, profile, seed;
    if (!(words >> name) || name[0] == '#') continue;
    if (!(words >> profile >> seed))
      refuse(std::string{file}.append(": expected 'SCENARIO PROFILE SEED', not '").append(line) +
             "'");
    made.push_back({&scenario_of(name, all), profile_of(profile), number_of(seed)});
  }
  return made;
}

std::chrono::milliseconds limit_of(double seconds) {
  constexpr double most = 1e6;
  if (!(seconds >= 0.001 && seconds <= most)) {
    std::ostringstream text;
    text << seconds;
    refuse("--seed-limit is from 0.001 to 1000000 seconds, not " + text.str());
  }
  return std::chrono::milliseconds{std::llround(seconds * 1000)};
}

std::string list_of(std::span<const scenario> all) {
  std::string made = "Scenarios:\n";
  for (const scenario& s : all) {
    std::string name{s.name};
    name.resize(std::max<std::size_t>(name.size() + 1, 24), ' ');
    made += "  " + name + s.what + '\n';
  }
  return made;
}

}  // namespace

command_line::command_line(int argc, const char* const* argv, std::span<const scenario> all) {
  CLI::App app{"Plays scenarios of simulated hosts, each seed another run"};
  app.footer(list_of(all));
  std::vector<std::string> names, with;
  std::string seed, seeds, plan_text, known_file;
  bool keeps_plan = false;
  app.add_option("scenario", names, "Scenarios (default: all)");
  CLI::Option* const one_seed = app.add_option("--seed", seed, "Plays one seed")->type_name("N");
  app.add_option("--seeds", seeds,
                 "Plays these seeds of each scenario; A.. plays from A on, for --minutes")
      ->type_name("A..B")
      ->excludes(one_seed);
  app.add_option("--minutes", minutes, "Plays new seeds for so long (default: 1)")->type_name("M");
  app.add_option("--profile", with,
                 "none, harsh, hostile, or scarce (default: all that a scenario is for)")
      ->allow_extra_args(false);
  app.add_option("--jobs", jobs, "Processes at once (default: processors)")->type_name("N");
  double limit_seconds = 120;
  app.add_option("--seed-limit", limit_seconds,
                 "A seed that takes so much longer hangs (default: 120)")
      ->type_name("SECONDS");
  app.add_option("--plan", plan_text, "Keeps only these decisions of the seed")->type_name("PLAN");
  app.add_option("--trace", timeline, "Writes a picture of one seed")->type_name("FILE.svg");
  app.add_option("--known", known_file, "Plays the seeds of a file first")->type_name("FILE");
  app.add_flag("--no-shrink", keeps_plan, "Does not look for a short plan of a finding");
  minutes = 1;
  jobs = std::max(1U, std::thread::hardware_concurrency());
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    std::exit(app.exit(help));  // NOLINT(concurrency-mt-unsafe): there is one thread.
  } catch (const CLI::ParseError& e) {
    refuse(e.what());
  }
  if (names.empty())
    for (const scenario& s : all) scenarios.push_back(&s);
  for (const std::string& name : names) scenarios.push_back(&scenario_of(name, all));
  if (with.empty()) with = {"none", "harsh", "hostile", "scarce"};
  for (const std::string& name : with) profiles.push_back(profile_of(name));
  kept = plan::parse(plan_text);
  shrinks = !keeps_plan && plan_text.empty();
  if (!known_file.empty()) known = read_known(known_file, all);
  if (!(minutes > 0)) {
    std::ostringstream text;
    text << minutes;
    refuse("--minutes is more than 0, not " + text.str());
  }
  seed_limit = limit_of(limit_seconds);
  if (jobs == 0) refuse("--jobs is at least 1, not 0");
  if (!seed.empty()) {
    first_seed = number_of(seed);
    last_seed = first_seed;
  } else if (!seeds.empty()) {
    const std::size_t dots = seeds.find("..");
    if (dots == std::string::npos) refuse("--seeds is A..B, not '" + seeds + "'");
    first_seed = number_of(seeds.substr(0, dots));
    if (dots + 2 < seeds.size()) last_seed = number_of(seeds.substr(dots + 2));
    if (last_seed && *last_seed < first_seed) refuse("--seeds goes up, not '" + seeds + "'");
  } else {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    first_seed = std::uint64_t(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  }
  const bool is_one = last_seed == first_seed && scenarios.size() == 1 && profiles.size() == 1;
  if (!timeline.empty() && !is_one)
    refuse("--trace needs one scenario, one --profile and one --seed");
}

}  // namespace cordma::sim::detail
