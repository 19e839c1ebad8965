#pragma once

#include "fetch.hpp"
#include "figures.hpp"

#include <optional>
#include <string>
#include <vector>

namespace top {

using moment = std::chrono::steady_clock::time_point;

enum class program_state : unsigned char {
  starting,  ///< Read once: rates come with the next page.
  running,
  unreadable,  ///< `reason` says why.
  ended,       ///< The socket has gone.
};

const char* to_string(program_state s) noexcept;

/// A line of the table.
struct program_line {
  int pid = 0;  ///< 0: not known, for one at an address.
  std::string name{};
  std::string device{};
  program_state state = program_state::starting;
  std::string reason{};
  figure_values figures{};
};

/// The programs that are watched. One round fetches each page once, and gives a line for each
/// program: the pages of a process, one for each runtime, belong together.
class programs {
 public:
  /// Rounds that a program which has ended is shown for.
  static constexpr unsigned rounds_after_end = 3;

  /// Begins a round with these targets. One that is missing here, and was found, has ended.
  void begin(const std::vector<target>& targets);
  /// Returns the fetches of the round, to poll.
  [[nodiscard]] std::vector<fetch*> pending();
  /// Ends the round: what has not come by now is unreadable.
  std::vector<program_line> end(moment now);

 private:
  struct source {
    explicit source(target of) : from{std::move(of)} {}
    target from;
    std::optional<fetch> fetching;
    std::optional<readings> before;
    moment read_at;
    std::string device;
    int pid = 0;
    bool is_others = false;    ///< A program of another user, who did not ask for it here.
    unsigned rounds_gone = 0;  ///< Rounds since it was there.
    bool is_there = true;
  };
  struct reading_outcome;

  [[nodiscard]] static reading_outcome read_source(source& one, moment now);

  std::vector<source> sources_;
};

/// Returns the text without what a terminal would take for commands.
std::string printable(std::string_view text);

}  // namespace top
