#include "progress.hpp"

#include "report.hpp"

#include <cordma/coro/sleep.hpp>

#include <unistd.h>

#include <cstdio>

namespace perf {
namespace {

constexpr std::chrono::milliseconds terminal_pause{200};
constexpr std::chrono::seconds file_pause{5};
constexpr std::chrono::milliseconds warm_up_check{10};
constexpr const char* to_empty_line = "\r\x1b[K";

double seconds_of(clock::duration length) { return std::chrono::duration<double>(length).count(); }

/// Prints a row for each period since all threads measure.
cordma::task<> report_periods(const job& what, const load& threads, const client_options& options) {
  while (!threads.is_measuring()) co_await cordma::sleep_for(warm_up_check);
  std::printf("%s", period_head(options.unit).c_str());
  const clock::time_point began = clock::now();
  clock::time_point before = began;
  histogram seen = threads.snapshot();
  for (int i = 1;; ++i) {
    co_await cordma::sleep_until(began + i * *options.report_every);
    const clock::time_point now = clock::now();
    histogram so_far = threads.snapshot();
    std::printf("%s", period_row(what, so_far.since(seen), seconds_of(now - began),
                                 seconds_of(now - before), options.unit)
                          .c_str());
    seen = std::move(so_far);
    before = now;
  }
}

}  // namespace

progress_line::progress_line() : is_terminal_{::isatty(STDERR_FILENO) == 1}, last_{clock::now()} {}
progress_line::~progress_line() {
  if (is_terminal_) std::fprintf(stderr, "%s", to_empty_line);
}

std::chrono::milliseconds progress_line::pause() const noexcept {
  return is_terminal_ ? terminal_pause : file_pause;
}

void progress_line::show(const std::string& text) {
  // A terminal takes each line: the last one of a short job is worth seeing.
  if (!is_terminal_ && clock::now() - last_ < pause()) return;
  last_ = clock::now();
  std::fprintf(stderr, "%s%s%s", is_terminal_ ? to_empty_line : "", text.c_str(),
               is_terminal_ ? "" : "\n");
  std::fflush(stderr);
}

cordma::task<> show_progress(job what, const load& threads, const client_options& options) {
  if (options.report_every) co_return co_await report_periods(what, threads, options);
  progress_line line;
  const std::string name = to_string(what);
  std::uint64_t before = 0;
  for (clock::time_point last = clock::now();;) {
    co_await cordma::sleep_for(line.pause());
    const clock::time_point now = clock::now();
    const std::uint64_t done = threads.done();
    const double a_second = double(done - before) / seconds_of(now - last);
    line.show(name + ": " + std::to_string(done) + " operations, " +
              std::to_string(std::uint64_t(a_second)) + " a second");
    before = done;
    last = now;
  }
}

}  // namespace perf
