#include "ranks_here.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace perf {
namespace {

/// The first byte of what a rank tells. The text of its reason follows.
enum class sign : char { own = 'o', by_another = 'a', silent = 's' };

sign sign_of(const rank_outcome& outcome) noexcept {
  if (!outcome.is_by_another) return sign::own;
  return outcome.is_silent ? sign::silent : sign::by_another;
}

[[noreturn]] void throw_errno(const char* call) {
  throw std::system_error{errno, std::system_category(), call};
}

class rank_process {
 public:
  rank_process(unsigned rank, const std::function<rank_outcome(unsigned)>& body) : rank_{rank} {
    int fds[2];
    if (::pipe(fds) != 0) throw_errno("pipe");
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) throw_errno("fork");
    if (pid_ == 0) {
      ::close(fds[0]);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);  // The parent died before prctl().
      run(body, fds[1]);
    }
    ::close(fds[1]);
    from_child_ = fds[0];
  }
  rank_process(rank_process&& other) noexcept
      : rank_{other.rank_},
        pid_{std::exchange(other.pid_, 0)},
        from_child_{std::exchange(other.from_child_, -1)},
        told_{std::move(other.told_)} {}
  ~rank_process() {
    if (from_child_ >= 0) ::close(from_child_);
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  [[nodiscard]] int from_child() const noexcept { return from_child_; }

  /// Reads what the rank tells; at its end, gives its outcome.
  std::optional<rank_outcome> read() {
    std::array<char, 1024> some;
    const ssize_t n = ::read(from_child_, some.data(), some.size());
    if (n > 0) told_.append(some.data(), std::size_t(n));
    if (n > 0 || (n < 0 && errno == EINTR)) return std::nullopt;
    ::close(std::exchange(from_child_, -1));
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return outcome_of(status);
  }

 private:
  [[noreturn]] void run(const std::function<rank_outcome(unsigned)>& body, int to_parent) const {
    const rank_outcome outcome = body(rank_);
    std::fflush(nullptr);
    if (!outcome.why.empty()) {
      const std::string text = char(sign_of(outcome)) + outcome.why;
      if (::write(to_parent, text.data(), text.size()) != ssize_t(text.size())) ::_exit(1);
    }
    ::_exit(outcome.exit_status);
  }
  [[nodiscard]] rank_outcome outcome_of(int status) const {
    const std::string name = "rank " + std::to_string(rank_);
    if (WIFSIGNALED(status))
      return {.exit_status = 1,
              .why = name + " was ended by signal " + std::to_string(WTERMSIG(status)) + " (" +
                     ::sigdescr_np(WTERMSIG(status)) + "): start again"};
    if (!told_.empty())
      return {.exit_status = WEXITSTATUS(status),
              .why = told_.substr(1),
              .is_by_another = told_.front() != char(sign::own),
              .is_silent = told_.front() == char(sign::silent)};
    if (WEXITSTATUS(status) == 0) return {};
    return {.exit_status = WEXITSTATUS(status),
            .why = name + " ended with status " + std::to_string(WEXITSTATUS(status)) +
                   ": start again"};
  }

  unsigned rank_;
  pid_t pid_ = 0;
  int from_child_ = -1;
  std::string told_;
};

[[noreturn]] void fail(const rank_outcome& outcome) {
  if (outcome.exit_status == misuse_status) throw std::invalid_argument{outcome.why};
  throw std::runtime_error{outcome.why};
}

}  // namespace

void run_ranks_here(unsigned count, const std::function<rank_outcome(unsigned rank)>& body) {
  std::fflush(nullptr);
  std::vector<rank_process> running;
  running.reserve(count);
  for (unsigned r = 0; r < count; ++r) running.emplace_back(r, body);
  std::optional<rank_outcome> by_another;
  for (std::size_t left = count; left > 0;) {
    std::vector<pollfd> watched;
    watched.reserve(running.size());
    for (const rank_process& p : running)
      watched.push_back({.fd = p.from_child(), .events = POLLIN, .revents = 0});
    if (::poll(watched.data(), nfds_t(watched.size()), -1) < 0 && errno != EINTR)
      throw_errno("poll");
    for (std::size_t i = 0; i < watched.size(); ++i) {
      if (watched[i].revents == 0) continue;
      const std::optional<rank_outcome> ended = running[i].read();
      if (!ended) continue;
      --left;
      if (ended->why.empty()) continue;
      if (!ended->is_by_another) fail(*ended);
      if (!by_another || !ended->is_silent) by_another = ended;
    }
  }
  if (by_another) fail(*by_another);
}

}  // namespace perf
