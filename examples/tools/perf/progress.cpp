#include "progress.hpp"

#include <cordma/coro/sleep.hpp>

#include <unistd.h>

#include <cstdio>

namespace perf {
namespace {

constexpr std::chrono::milliseconds pause{200};

/// A line that is gone when this is.
struct line {
  line() = default;
  line(const line&) = delete;
  line& operator=(const line&) = delete;
  ~line() {
    if (is_there) std::fprintf(stderr, "\r\x1b[K");
  }
  bool is_there = false;
};

}  // namespace

cordma::task<> show_progress(job what, const load& threads) {
  const std::string name = to_string(what);
  // Not seen, it still is what ends last: it waits to be stopped.
  const bool is_seen = ::isatty(STDERR_FILENO) == 1;
  line shown;
  std::uint64_t before = 0;
  for (;;) {
    co_await cordma::sleep_for(is_seen ? pause : std::chrono::hours{1});
    if (!is_seen) continue;
    const std::uint64_t done = threads.done();
    const std::chrono::duration<double> length = pause;
    std::fprintf(stderr, "\r\x1b[K%s: %ju operations, %.0f a second", name.c_str(),
                 std::uintmax_t{done}, double(done - before) / length.count());
    std::fflush(stderr);
    shown.is_there = true;
    before = done;
  }
}

}  // namespace perf
