#pragma once

#include "load.hpp"

#include <cordma/coro/task.hpp>

#include <string>

namespace perf {

/// A line on stderr that says how far something is, where that is a terminal; gone when this is.
class progress_line {
 public:
  progress_line();
  progress_line(const progress_line&) = delete;
  progress_line& operator=(const progress_line&) = delete;
  ~progress_line();

  [[nodiscard]] bool is_seen() const noexcept { return is_seen_; }
  void show(const std::string& text);

 private:
  const bool is_seen_;
};

/// Prints how far `threads` are, until it is stopped.
cordma::task<> show_progress(job what, const load& threads);

}  // namespace perf
