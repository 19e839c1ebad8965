#include "programs.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <stdexcept>
#include <utility>

namespace top {
namespace {

/// Returns a process's name as the kernel knows it; empty: it has gone.
std::string name_of(int pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/comm"};
  std::string name;
  std::getline(file, name);
  return printable(name);
}

/// True for a program of another user that was not asked for, and would let only root read.
bool is_of_others(const target& from, const ucred& peer) {
  return from.was_found && ::geteuid() != 0 && peer.uid != ::geteuid();
}

}  // namespace

const char* to_string(program_state s) noexcept {
  switch (s) {
    case program_state::starting: return "starting";
    case program_state::running: return "running";
    case program_state::unreadable: return "unreadable";
    case program_state::ended: return "ended";
  }
  return "unknown";
}

std::string printable(std::string_view text) {
  std::string made{text};
  for (char& c : made)
    if (c < ' ' || c > '~') c = '?';
  return made;
}

/// The result of reading one page.
struct programs::reading_outcome {
  program_state state = program_state::unreadable;
  std::string reason;
  std::optional<readings> now;
  std::optional<readings> before;
  seconds length{0};
};

void programs::begin(const std::vector<target>& targets) {
  for (source& one : sources_) one.is_there = false;
  for (const target& each : targets) {
    const auto known = std::ranges::find_if(
        sources_, [&](const source& one) { return one.from.text == each.text; });
    source& one = known != sources_.end() ? *known : sources_.emplace_back(each);
    one.is_there = true;
    one.rounds_gone = 0;
    one.fetching.emplace(one.from);
  }
  std::erase_if(sources_,
                [](source& one) { return !one.is_there && ++one.rounds_gone > rounds_after_end; });
}

std::vector<fetch*> programs::pending() {
  std::vector<fetch*> all;
  for (source& one : sources_)
    if (one.fetching && !one.fetching->has_ended()) all.push_back(&*one.fetching);
  return all;
}

programs::reading_outcome programs::read_source(source& one, moment now) {
  reading_outcome outcome;
  outcome.before = one.before;
  if (!one.fetching) {
    outcome.state = program_state::ended;
    return outcome;
  }
  fetch& got = *one.fetching;
  got.give_up();
  if (got.peer()) {
    one.pid = got.peer()->pid;
    one.is_others = is_of_others(one.from, *got.peer());
  }
  try {
    if (got.now() == fetch::state::failed) throw std::runtime_error{got.reason()};
    if (one.from.pid != 0 && one.pid != 0 && one.pid != one.from.pid)
      throw std::runtime_error{"process " + std::to_string(one.pid) + " listens at this name"};
    const page text = page::parse(got.body());
    outcome.now = read(text);
    outcome.length = now - one.read_at;
    outcome.state = one.before ? program_state::running : program_state::starting;
    one.device = printable(text.label("device"));
    one.before = outcome.now;
    one.read_at = now;
  } catch (const std::runtime_error& e) {
    outcome.reason = printable(e.what());
    one.before.reset();
  }
  one.fetching.reset();
  return outcome;
}

std::vector<program_line> programs::end(moment now) {
  std::map<std::pair<int, std::string>, std::pair<program_line, figure_sum>> lines;
  for (source& one : sources_) {
    const reading_outcome outcome = read_source(one, now);
    if (one.is_others) continue;
    const int pid = one.from.pid != 0 ? one.from.pid : one.pid;
    auto& [line, sum] = lines[{pid, pid != 0 ? std::string{} : one.from.text}];
    const bool is_first = line.name.empty();
    if (is_first) {
      line.pid = pid;
      line.name = pid != 0 ? name_of(pid) : std::string{};
      if (line.name.empty()) line.name = printable(one.from.text);
      line.state = outcome.state;
    }
    // A process with several runtimes runs as long as one of them is there.
    if (outcome.now && line.state != program_state::running) line.state = outcome.state;
    if (!outcome.reason.empty()) line.reason = outcome.reason;
    if (!one.device.empty()) line.device = one.device;
    if (outcome.now)
      sum.add(outcome.before ? &*outcome.before : nullptr, *outcome.now, outcome.length);
  }
  std::vector<program_line> all;
  for (auto& [key, made] : lines) {
    made.first.figures = made.second.take();
    all.push_back(std::move(made.first));
  }
  return all;
}

}  // namespace top
