// cordma-top: what running programs with cordma do. docs/cordma-top.md says how to use it.

#include "options.hpp"
#include "printers.hpp"
#include "terminal.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace {

using namespace top;
using steady = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// A page that has not come by then is unreadable.
constexpr milliseconds fetch_timeout{2000};
constexpr const char* nobody =
    "no such program serves its metrics: start it with CORDMA_METRICS=on";

/// Signals as a descriptor to poll. They are blocked from here on.
class signals {
 public:
  signals() {
    ::sigemptyset(&taken_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP})
      ::sigaddset(&taken_, number);
    ::pthread_sigmask(SIG_BLOCK, &taken_, nullptr);
    fd_ = cordma::unique_fd{::signalfd(-1, &taken_, SFD_NONBLOCK | SFD_CLOEXEC)};
    if (!fd_.is_open()) throw std::system_error{errno, std::generic_category(), "signalfd"};
  }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// Returns the next signal; 0: none.
  [[nodiscard]] int next() const noexcept {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof info) == sizeof info ? int(info.ssi_signo) : 0;
  }
  /// Ends the process as the signal would have done.
  void obey(int number) const noexcept {
    static_cast<void>(std::signal(number, SIG_DFL));
    static_cast<void>(std::raise(number));
    ::pthread_sigmask(SIG_UNBLOCK, &taken_, nullptr);
  }

 private:
  sigset_t taken_{};
  cordma::unique_fd fd_;
};

/// Reasons why a wait ends.
enum class wake : unsigned char { time, fetched, redraw, quit };

class watcher {
 public:
  explicit watcher(const options& o) : options_{o} {
    for (const std::string& page : o.pages) named_.push_back(parse_target(page));
    if (!o.is_plain && ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDIN_FILENO) == 1)
      screen_.emplace();
  }

  /// Returns the exit status. A signal that ended the work then ends the process.
  int run();

 private:
  [[nodiscard]] std::vector<target> targets() const;
  void watch();
  bool round();
  wake wait(steady::time_point until, bool for_pages);
  wake on_input();
  void show();
  void print() const;

  const options& options_;
  const signals signals_;
  std::vector<target> named_;
  std::optional<terminal> screen_;
  programs programs_;
  std::vector<program_line> lines_;
  const steady::time_point start_ = steady::now();
  int signal_ = 0;
};

std::vector<target> watcher::targets() const {
  std::vector<target> all = named_;
  if (!options_.pids.empty() || named_.empty()) {
    std::ifstream sockets{"/proc/net/unix"};
    const std::vector<target> found = find_targets(sockets, options_.pids);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

/// Fetches all pages once; false: the user wants to leave.
bool watcher::round() {
  programs_.begin(targets());
  const steady::time_point deadline = steady::now() + fetch_timeout;
  while (!programs_.pending().empty() && steady::now() < deadline) {
    if (wait(deadline, true) == wake::quit) return false;
  }
  lines_ = programs_.end(steady::now());
  return true;
}

wake watcher::wait(steady::time_point until, bool for_pages) {
  std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}, {screen_ ? STDIN_FILENO : -1, POLLIN, 0}};
  const std::vector<fetch*> fetches = for_pages ? programs_.pending() : std::vector<fetch*>{};
  for (const fetch* one : fetches) fds.push_back({one->fd(), one->events(), 0});
  const auto left = std::chrono::ceil<milliseconds>(until - steady::now());
  const int ready = ::poll(fds.data(), fds.size(), int(std::max<std::int64_t>(left.count(), 0)));
  if (ready < 0 && errno != EINTR) throw std::system_error{errno, std::generic_category(), "poll"};
  if (ready <= 0) return wake::time;
  for (std::size_t n = 0; n < fetches.size(); ++n)
    if (fds[n + 2].revents != 0) fetches[n]->advance();
  return fds[0].revents != 0 || fds[1].revents != 0 ? on_input() : wake::fetched;
}

wake watcher::on_input() {
  wake outcome = wake::fetched;
  while (const int number = signals_.next()) {
    if (number == SIGTSTP) {
      if (screen_) screen_->leave();
      static_cast<void>(::kill(::getpid(), SIGSTOP));
      if (screen_) screen_->enter();
      outcome = wake::redraw;
    } else if (number == SIGWINCH) {
      outcome = wake::redraw;
    } else {
      signal_ = number;
      return wake::quit;
    }
  }
  if (screen_) {
    char key = screen_->key();
    for (; key != 0; key = screen_->key())
      if (key == 'q' || key == 'Q') return wake::quit;
    // A terminal that hung up is readable for ever.
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, 0) == 1 && (input.revents & (POLLHUP | POLLERR)) != 0) return wake::quit;
  }
  return outcome;
}

void watcher::show() {
  std::string text = "cordma-top: " + std::to_string(lines_.size()) + " programs, every ";
  const auto interval = std::chrono::duration<double>(options_.interval).count();
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "%g s; q quits\n", interval);
  text += number.data();
  const std::size_t columns = screen_->dimensions().columns;
  if (text.size() > columns) text = text.substr(0, columns) + '\n';
  text += '\n';
  screen_->show(lines_.empty() ? text + nobody : text + table(lines_, columns));
}

void watcher::print() const {
  const std::string text = options_.is_json ? json(lines_, steady::now() - start_) : table(lines_);
  std::fputs(text.c_str(), stdout);
  if (!options_.is_json && options_.count != 1) std::fputc('\n', stdout);
  if (std::fflush(stdout) != 0) throw std::system_error{errno, std::generic_category(), "write"};
}

void watcher::watch() {
  for (unsigned rounds = 0; options_.count == 0 || rounds <= options_.count; ++rounds) {
    const steady::time_point next = steady::now() + options_.interval;
    if (!round()) return;
    if (screen_) {
      show();
    } else if (rounds > 0) {  // The first pages give no rates.
      print();
    }
    if (options_.count != 0 && rounds == options_.count) return;
    while (steady::now() < next) {
      const wake why = wait(next, false);
      if (why == wake::quit) return;
      if (why == wake::redraw && screen_) show();
    }
  }
}

int watcher::run() {
  watch();
  const bool has_screen = screen_.has_value();
  screen_.reset();
  if (signal_ != 0) signals_.obey(signal_);
  const bool is_one_read = std::ranges::any_of(
      lines_, [](const program_line& one) { return one.state == program_state::running; });
  if (has_screen || is_one_read) return 0;
  if (lines_.empty()) std::fprintf(stderr, "cordma-top: %s\n", nobody);
  return 1;
}

}  // namespace

int main(int argc, char** argv) try {
  const options o = parse_options(argc, argv);
  if (!o.help.empty()) {
    std::printf("%s", o.help.c_str());
    return 0;
  }
  return watcher{o}.run();
} catch (const std::invalid_argument& e) {
  std::fprintf(stderr, "cordma-top: %s\n", e.what());
  return 2;
} catch (const std::exception& e) {
  std::fprintf(stderr, "cordma-top: %s\n", e.what());
  return 1;
}
