#pragma once

#include "load.hpp"

#include <cordma/coro/task.hpp>

#include <string>

namespace perf {

/// A line on stderr that says how far something is. On a terminal the line is replaced by the next
/// one, and gone when this is. Elsewhere each is a line of its own, and there are few.
class progress_line {
 public:
  progress_line();
  progress_line(const progress_line&) = delete;
  progress_line& operator=(const progress_line&) = delete;
  ~progress_line();

  /// Returns the time between two lines.
  [[nodiscard]] std::chrono::milliseconds pause() const noexcept;
  /// Shows a line. Where that is no terminal, only if the pause since the last one is over.
  void show(const std::string& text);

 private:
  const bool is_terminal_;
  clock::time_point last_;
};

/// Prints how far `threads` are on stderr, until it is stopped. If the options have a time between
/// reports, prints a row on stdout after each such time instead.
cordma::task<> show_progress(job what, const load& threads, const client_options& options);

}  // namespace perf
