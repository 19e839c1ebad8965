#pragma once

#include <fcntl.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <array>
#include <csignal>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace cordma::test {

struct outcome {
  int exit_status = -1;
  std::string output;  // stdout and stderr
};

inline int exit_status_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

inline outcome run(const std::string& command) {
  outcome result;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> chunk;
  while (const std::size_t n = std::fread(chunk.data(), 1, chunk.size(), pipe)) {
    result.output.append(chunk.data(), n);
  }
  result.exit_status = exit_status_of(::pclose(pipe));
  return result;
}

/// Does what `run` does, but the command sees a terminal.
inline outcome run_on_terminal(const std::string& command) {
  outcome result;
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  REQUIRE(child >= 0);
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  std::array<char, 4096> chunk;
  for (ssize_t n; (n = ::read(terminal, chunk.data(), chunk.size())) > 0;) {
    result.output.append(chunk.data(), std::size_t(n));
  }
  ::close(terminal);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  result.exit_status = exit_status_of(status);
  return result;
}

/// A command that runs beside the test, and is killed with it. Its words go to no shell.
class background {
 public:
  explicit background(std::vector<std::string> words) {
    int fds[2];
    REQUIRE(::pipe2(fds, O_CLOEXEC) == 0);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::dup2(fds[1], STDOUT_FILENO);
      ::dup2(fds[1], STDERR_FILENO);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(fds[1]);
    output_ = ::fdopen(fds[0], "r");
    REQUIRE(output_ != nullptr);
  }
  background(const background&) = delete;
  background& operator=(const background&) = delete;
  ~background() {
    kill();
    std::fclose(output_);
  }

  /// The rest of the first line from now on that has `text` in it, after that; fails when there is
  /// none.
  std::string line_after(const std::string& text) {
    for (std::string line; next(line);) {
      const std::size_t found = line.find(text);
      if (found != std::string::npos) return line.substr(found + text.size());
    }
    FAIL("it ended without '" << text << "'");
    return {};
  }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  /// Gives what the process still says, or said before it was killed.
  std::string rest() {
    std::string all;
    for (std::string line; next(line);) all += line + '\n';
    return all;
  }
  /// Waits for its end.
  outcome end() {
    outcome result{.output = rest()};
    int status = 0;
    REQUIRE(::waitpid(std::exchange(pid_, 0), &status, 0) > 0);
    result.exit_status = exit_status_of(status);
    return result;
  }

 private:
  bool next(std::string& line) {
    line.clear();
    for (int c; (c = std::fgetc(output_)) != EOF; line += char(c)) {
      if (c == '\n') return true;
    }
    return !line.empty();
  }

  pid_t pid_ = 0;
  FILE* output_ = nullptr;
};

}  // namespace cordma::test
