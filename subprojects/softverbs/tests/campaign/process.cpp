#include "process.hpp"

#include "rig.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

namespace rig {
namespace {

constexpr const char* role_option = "--play-role";

std::map<std::string, role::run_type*>& roles() {
  static std::map<std::string, role::run_type*> all;
  return all;
}

}  // namespace

descriptor& descriptor::operator=(descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

void descriptor::close() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

socket_pair::socket_pair() {
  int fds[2];
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), "socketpair");
  ours = descriptor{fds[0]};
  theirs = descriptor{fds[1]};
}

role::role(const char* name, run_type* run) { roles()[name] = run; }

int play_role(int argc, char** argv) {
  if (argc < 3 || std::strcmp(argv[1], role_option) != 0) return -1;
  try {
    return roles().at(argv[2])({argv + 3, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[2], error.what());
    return 1;
  }
}

child::child(const std::string& role, std::initializer_list<int> inherited,
             const std::vector<std::string>& arguments,
             const std::vector<std::string>& environment) {
  std::vector<const char*> argv{"/proc/self/exe", role_option, role.c_str()};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  argv.push_back(nullptr);
  std::vector<const char*> env;
  for (const std::string& setting : environment) env.push_back(setting.c_str());
  for (char** e = environ; *e != nullptr; ++e) env.push_back(*e);
  env.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  check(::posix_spawn_file_actions_init(&actions), "posix_spawn_file_actions_init");
  // Out of the way first: a source may be another's target.
  constexpr int aside = 200;
  int n = 0;
  for (const int fd : inherited) {
    check(::posix_spawn_file_actions_adddup2(&actions, fd, aside + n++), "adddup2");
  }
  for (int i = 0; i < n; ++i) {
    check(::posix_spawn_file_actions_adddup2(&actions, aside + i, first_inherited_fd + i),
          "adddup2");
    check(::posix_spawn_file_actions_addclose(&actions, aside + i), "addclose");
  }
  const int error =
      ::posix_spawn(&pid_, argv[0], &actions, nullptr, const_cast<char* const*>(argv.data()),
                    const_cast<char* const*>(env.data()));
  ::posix_spawn_file_actions_destroy(&actions);
  check(error, "posix_spawn");
}

child& child::operator=(child&& other) noexcept {
  std::swap(pid_, other.pid_);
  return *this;
}

void child::kill() noexcept {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

int child::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0) {
    if (errno != EINTR) fail("waitpid", errno);
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void write_bytes(int fd, const void* bytes, std::size_t count) {
  const auto* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t n = ::send(fd, from, count, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("writing to the other process", errno);
    from += n;
    count -= static_cast<std::size_t>(n);
  }
}

void read_bytes(int fd, void* bytes, std::size_t count) {
  auto* to = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t n = ::recv(fd, to, count, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("reading from the other process", n == 0 ? ECONNRESET : errno);
    to += n;
    count -= static_cast<std::size_t>(n);
  }
}

void put_text(int fd, const std::string& text) {
  put(fd, text.size());
  write_bytes(fd, text.data(), text.size());
}

std::string get_text(int fd) {
  std::string text(get<std::size_t>(fd), '\0');
  read_bytes(fd, text.data(), text.size());
  return text;
}

}  // namespace rig
