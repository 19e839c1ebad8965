#pragma once

#include <sys/types.h>

#include <cstddef>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

namespace rig {

/// The inherited descriptors of a child start here, in the order in which spawn() got them.
inline constexpr int first_inherited_fd = 3;

/// A file descriptor with an owner.
class descriptor {
 public:
  explicit descriptor(int fd = -1) noexcept : fd_{fd} {}
  descriptor(descriptor&& other) noexcept : fd_{other.fd_} { other.fd_ = -1; }
  descriptor& operator=(descriptor&& other) noexcept;
  ~descriptor() { close(); }
  void close() noexcept;
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

struct socket_pair {
  socket_pair();
  descriptor ours, theirs;
};

/// A function for a child of this program: `static const role r{"name", run}`. `run` gets the
/// arguments after the name; an exception of `run` is printed and makes the child exit 1.
struct role {
  using run_type = int(const std::vector<std::string>& arguments);
  role(const char* name, run_type* run);
};
/// For main(): plays the role that the command line names, if it names one. -1: it does not.
int play_role(int argc, char** argv);

/// A child process: this program, started again in a role. The destructor kills and reaps it.
class child {
 public:
  child() = default;
  child(const std::string& role, std::initializer_list<int> inherited,
        const std::vector<std::string>& arguments = {},
        const std::vector<std::string>& environment = {});
  child(child&& other) noexcept : pid_{other.pid_} { other.pid_ = -1; }
  child& operator=(child&& other) noexcept;
  ~child() { kill(); }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void kill() noexcept;  ///< kills by SIGKILL, and awaits the end
  int wait();            ///< the exit status; 128 + n when signal n ended it

 private:
  pid_t pid_ = -1;
};

/// Whole messages over a stream socket; they throw, with ECONNRESET when the other end has gone.
void write_bytes(int fd, const void* bytes, std::size_t count);
void read_bytes(int fd, void* bytes, std::size_t count);
template <typename T>
void put(int fd, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  write_bytes(fd, &value, sizeof value);
}
template <typename T>
T get(int fd) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value{};
  read_bytes(fd, &value, sizeof value);
  return value;
}
void put_text(int fd, const std::string& text);
std::string get_text(int fd);

}  // namespace rig
