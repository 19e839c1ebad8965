#pragma once

#include <catch2/catch.hpp>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <string>
#include <utility>

namespace cordma::test {

/// A process that lives as a rank, and says lines of text. Made before this process has a runtime:
/// a fork copies no device.
class rank_process {
 public:
  /// \param live  a function that takes a function, which says a line.
  template <class Live>
  explicit rank_process(Live live) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::close(ends[0]);
      const auto say = [&](std::string line) {
        line += '\n';
        static_cast<void>(::write(ends[1], line.data(), line.size()) == ssize_t(line.size()));
      };
      try {
        live(say);
      } catch (const std::exception& e) {
        say(std::string{"failed: "} + e.what());
      }
      ::_exit(0);
    }
    ::close(ends[1]);
    said_ = ends[0];
  }
  rank_process(rank_process&& other) noexcept
      : pid_{std::exchange(other.pid_, 0)},
        said_{std::exchange(other.said_, -1)},
        text_{std::move(other.text_)} {}
  rank_process& operator=(rank_process&&) = delete;
  ~rank_process() {
    end();
    if (said_ >= 0) ::close(said_);
  }

  /// Returns the next line; empty: the process has ended, or says nothing for so long.
  std::string line(std::chrono::nanoseconds patience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    for (;;) {
      if (const auto end = text_.find('\n'); end != std::string::npos) {
        std::string first = text_.substr(0, end);
        text_.erase(0, end + 1);
        return first;
      }
      const std::chrono::nanoseconds left = until - std::chrono::steady_clock::now();
      const timespec most{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
      pollfd waits{said_, POLLIN, 0};
      if (left.count() <= 0 || ::ppoll(&waits, 1, &most, nullptr) <= 0) return {};
      char more[512];
      const ssize_t n = ::read(said_, more, sizeof more);
      if (n <= 0) return {};
      text_.append(more, std::size_t(n));
    }
  }
  void signal(int number) const noexcept {
    if (pid_ > 0) ::kill(pid_, number);
  }
  void end() noexcept {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
  int said_ = -1;
  std::string text_{};
};

}  // namespace cordma::test
