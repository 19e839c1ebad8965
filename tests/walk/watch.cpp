#include "watch.hpp"

#include <poll.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is POSIX's.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <new>
#include <utility>

namespace walk {

using namespace std::chrono_literals;

namespace {

std::string text_of(const char* name, const side& s) {
  std::string text = std::string{"\n  "} + name + " end: " + s.doing.load() + ", " +
                     std::to_string(s.operations) + " operations ended";
  if (s.has_failed) text += std::string{"; failed: "} + s.failure.data();
  return text;
}

/// Tells where in the kernel a walker's threads wait.
std::string text_of(const walker& w) {
  const std::string tasks = "/proc/" + std::to_string(w.pid()) + "/task";
  std::string text = "\n  process " + std::to_string(w.pid()) + ':';
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator{tasks, gone}) {
    std::string name, waits_in;
    std::getline(std::ifstream{task.path() / "comm"}, name);
    std::getline(std::ifstream{task.path() / "wchan"}, waits_in);
    text += ' ' + name + " in " + waits_in + ';';
  }
  return text;
}

/// Tells whether each thread of a walker sleeps, rather than runs or waits for a processor.
bool is_asleep(const walker& w) {
  std::error_code gone;
  const std::string tasks = "/proc/" + std::to_string(w.pid()) + "/task";
  for (const auto& task : std::filesystem::directory_iterator{tasks, gone}) {
    std::string stat;
    std::getline(std::ifstream{task.path() / "stat"}, stat);
    const std::size_t name_end = stat.rfind(')');
    if (name_end != std::string::npos && stat.substr(name_end).starts_with(") R")) return false;
  }
  return true;
}

}  // namespace

walker::walker(const std::function<void()>& work) {
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  check(pid_ >= 0, "fork");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    try {
      work();
      ::_exit(0);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "walker: %s\n", e.what());
      ::_exit(1);
    }
  }
  fd_ = cordma::unique_fd{int(::syscall(SYS_pidfd_open, pid_, 0))};
  check(fd_.is_open(), "pidfd_open");
}

walker::~walker() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool walker::has_ended_well() noexcept {
  int status = 0;
  if (::waitpid(std::exchange(pid_, -1), &status, 0) < 0) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::shared_ptr<board> make_board() {
  void* const at =
      ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(at != MAP_FAILED, "mmap");
  return {new (at) board, [](board* b) { ::munmap(b, sizeof *b); }};
}

std::optional<std::string> watch(board& b, const walkers& all, std::chrono::milliseconds patience) {
  // Counted rather than timed: where this process gets no processor, the pair gets none. A pair
  // that wants to run may lack a processor, and has ten times the patience.
  constexpr std::chrono::milliseconds glance = 50ms;
  std::chrono::milliseconds quiet{};
  std::uint64_t seen = 0;
  std::string found;
  std::vector<pollfd> alive;
  for (const auto& w : all) alive.push_back({.fd = w->fd(), .events = POLLIN, .revents = 0});
  const auto has_ended = [](const pollfd& p) { return p.fd < 0; };
  while (!std::ranges::all_of(alive, has_ended)) {
    ::poll(alive.data(), alive.size(), int(glance.count()));
    for (std::size_t i = 0; i < alive.size(); ++i) {
      if (alive[i].revents == 0) continue;
      alive[i].fd = -1, alive[i].revents = 0;
      if (!all[i]->has_ended_well()) found = "a process ended badly";
    }
    if (b.asking.has_failed || b.answering.has_failed) found = "it failed";
    const auto sleeps = [&](const pollfd& p) {
      return has_ended(p) || is_asleep(*all[std::size_t(&p - alive.data())]);
    };
    if (const std::uint64_t steps = b.asking.steps + b.answering.steps; steps != seen) {
      seen = steps;
      quiet = {};
    } else {
      quiet += std::ranges::all_of(alive, sleeps) ? glance : glance / 10;
    }
    if (quiet > patience) found = "nothing got on for " + std::to_string(patience.count()) + " ms";
    if (found.empty()) continue;
    found += text_of("asking", b.asking) + text_of("answering", b.answering);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!has_ended(alive[i])) found += text_of(*all[i]);
    return found;
  }
  return std::nullopt;
}

}  // namespace walk
