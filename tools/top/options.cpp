#include "options.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace top {
namespace {

constexpr const char* about =
    "Shows what running programs with cordma do, by their metrics.\n"
    "Exit status: 0, 1 if no program could be read at the end, 2 for wrong arguments.";

bool is_number(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

int parse_pid(const std::string& text) {
  int pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc{} || end != text.data() + text.size() || pid <= 0)
    throw std::invalid_argument{text + " is no number of a process"};
  return pid;
}

}  // namespace

options parse_options(int argc, char** argv) {
  options o;
  std::vector<std::string> targets;
  double interval_s = 1;
  bool is_once = false;
  CLI::App app{about, "cordma-top"};
  app.add_option("TARGET", targets,
                 "PID, unix:PATH, unix:@NAME or http://HOST:PORT/PATH; default: all programs of "
                 "this user with CORDMA_METRICS=on");
  app.add_option("--interval", interval_s, "Seconds between two readings; default 1")
      ->check(CLI::Range(0.1, 3600.0));
  app.add_option("--count", o.count, "Print that many tables, below each other, and end")
      ->check(CLI::Range(1, 1000000));
  app.add_flag("--once", is_once, "Print one table, of one interval: --count 1");
  app.add_flag("--json", o.is_json, "Print a line of JSON for each interval instead of a table");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    o.help = app.help();
    return o;
  } catch (const CLI::ParseError& e) {
    throw std::invalid_argument{std::string{e.what()} + " (--help lists the options)"};
  }
  if (is_once && o.count > 1) throw std::invalid_argument{"say --once or --count, not both"};
  if (is_once) o.count = 1;
  o.is_plain = o.count != 0 || o.is_json;
  o.interval = std::chrono::milliseconds{std::int64_t(interval_s * 1000)};
  for (const std::string& one : targets) {
    if (is_number(one))
      o.pids.push_back(parse_pid(one));
    else
      o.pages.push_back(one);
  }
  return o;
}

}  // namespace top
