#include "progress.hpp"

#include <cordma/coro/sleep.hpp>

#include <unistd.h>

#include <cstdio>

namespace perf {
namespace {

constexpr std::chrono::milliseconds pause{200};
constexpr const char* to_empty_line = "\r\x1b[K";

}  // namespace

progress_line::progress_line() : is_seen_{::isatty(STDERR_FILENO) == 1} {}
progress_line::~progress_line() {
  if (is_seen_) std::fprintf(stderr, "%s", to_empty_line);
}

void progress_line::show(const std::string& text) {
  if (!is_seen_) return;
  std::fprintf(stderr, "%s%s", to_empty_line, text.c_str());
  std::fflush(stderr);
}

cordma::task<> show_progress(job what, const load& threads) {
  progress_line line;
  const std::string name = to_string(what);
  std::uint64_t before = 0;
  for (;;) {
    // A line that is not seen waits until it is stopped: a task that ends first ends the others.
    co_await cordma::sleep_for(line.is_seen() ? pause : std::chrono::hours{1});
    const std::uint64_t done = threads.done();
    const double a_second = double(done - before) / std::chrono::duration<double>(pause).count();
    line.show(name + ": " + std::to_string(done) + " operations, " +
              std::to_string(std::uint64_t(a_second)) + " a second");
    before = done;
  }
}

}  // namespace perf
