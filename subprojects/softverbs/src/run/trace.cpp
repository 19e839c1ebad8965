#include "run/trace.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace softverbs::run {

namespace {

std::string read_to_end(int fd) {
  std::string text;
  char piece[4096];
  for (ssize_t bytes = 0; (bytes = ::read(fd, piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(bytes));
  return text;
}

[[noreturn]] void become_trace(const std::string& dynamic_linker, const std::string& path,
                               const std::string& preload, int output) {
  ::setenv("LD_PRELOAD", preload.c_str(), 1);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execl(dynamic_linker.c_str(), dynamic_linker.c_str(), "--list", path.c_str(),
          static_cast<char*>(nullptr));
  ::_exit(1);
}

/// Reads one line: "libc.so.6 => /lib/libc.so.6 (0x...)", "libx.so => not found",
/// "/lib64/ld.so (0x...)", or a message, which has no tab in front.
void add_line(const std::string& line, trace& to) {
  std::istringstream words{line};
  std::string name;
  std::string next;
  std::string path;
  if (!line.starts_with('\t')) {
    if (!line.empty()) to.messages.push_back(line);
    return;
  }
  words >> name >> next >> path;
  if (next != "=>")
    to.loaded.push_back(name);
  else if (path == "not")
    to.missing.push_back(name);
  else
    to.loaded.push_back(path);
}

}  // namespace

bool trace::loads(const std::string& file) const {
  return std::any_of(loaded.begin(), loaded.end(), [&](const std::string& path) {
    return path.substr(path.rfind('/') + 1) == file;
  });
}

trace trace_program(const std::string& dynamic_linker, const std::string& path,
                    const std::string& preload) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error{"pipe2 failed"};
  const pid_t child = ::fork();
  if (child == 0) become_trace(dynamic_linker, path, preload, ends[1]);
  ::close(ends[1]);
  std::istringstream lines{read_to_end(ends[0])};
  ::close(ends[0]);
  if (child < 0) throw std::runtime_error{"fork failed"};
  int status = 0;
  ::waitpid(child, &status, 0);
  trace found;
  for (std::string line; std::getline(lines, line);) add_line(line, found);
  return found;
}

}  // namespace softverbs::run
