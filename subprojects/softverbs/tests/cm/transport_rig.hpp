#pragma once

#include "cm/transport.hpp"
#include "link/unique_fd.hpp"

#include <sys/types.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace softverbs::cm::test {

/// A record of the events of one conversation.
struct talker final : conversation::user {
  void on_message(const message& from_peer) noexcept override { heard.push_back(from_peer); }
  void on_end(int error) noexcept override { ended = error; }
  [[nodiscard]] bool has_heard(message_kind kind) const {
    return !heard.empty() && heard.back().kind == kind;
  }
  std::unique_ptr<conversation> with;
  std::vector<message> heard;
  std::optional<int> ended;
};

/// A transport as a process has it, without a node: run_until() is its engine.
class side : public transport::listener {
 public:
  struct request {
    binding* name;
    message words;
    std::unique_ptr<talker> from;  ///< the user of the conversation
  };

  side();
  void on_request(binding& name, std::unique_ptr<conversation> from,
                  const message& words) noexcept override;
  std::unique_ptr<binding> bind(const char* address, std::uint16_t port = 0, bool v6_only = false,
                                bool reuse = false);
  std::unique_ptr<binding> listen(const char* address = "127.0.0.1", std::uint16_t port = 0);
  std::unique_ptr<talker> ask(const endpoint& to, const char* source = "127.0.0.1");

  std::unique_ptr<transport> network;
  std::vector<request> requests;
  int error = 0;  ///< error of the last bind()
};

in6_addr address_of(const char* text);  ///< IPv4 in dotted form becomes a mapped address
endpoint at(const char* address, std::uint16_t port);
message request_to(const endpoint& to, const char* source = "127.0.0.1");
message of_kind(message_kind kind);

/// Runs the transports until `what` holds. False: it does not within a generous time.
bool run_until(std::initializer_list<side*> sides, const std::function<bool()>& what);
/// Runs the transports until no descriptor is readable.
void settle(std::initializer_list<side*> sides);

/// The environment of the transports that are made during its life.
class setting {
 public:
  setting(const char* name, const std::string& value);
  ~setting();
  setting(const setting&) = delete;
  setting& operator=(const setting&) = delete;

 private:
  const char* name_;
};
/// A value of SOFTVERBS_PORT whose port of requests is free.
std::string free_port();

/// A forked process, which does `what` with a socket to this one. Killed by the destructor.
class forked {
 public:
  explicit forked(const std::function<void(int control)>& what);
  ~forked() { kill(); }
  forked(const forked&) = delete;
  forked& operator=(const forked&) = delete;
  void kill() noexcept;
  void stop() const noexcept;  ///< Sends SIGSTOP; returns when the process is stopped.
  void resume() const noexcept;
  /// The exit status, once it has ended by itself.
  int wait() noexcept;
  template <typename T>
  T get() const {
    T value{};
    read(&value, sizeof value);
    return value;
  }
  template <typename T>
  void put(const T& value) const {
    send(&value, sizeof value);
  }
  void go_on() const { put('g'); }

 private:
  void read(void* bytes, std::size_t count) const;
  void send(const void* bytes, std::size_t count) const;
  unique_fd control_;
  pid_t process_ = -1;
};
/// Functions for the forked process.
template <typename T>
void put(int control, const T& value);
void put_bytes(int control, const void* bytes, std::size_t count);
template <typename T>
void put(int control, const T& value) {
  put_bytes(control, &value, sizeof value);
}
void await_go(int control);  ///< ends the process when the other end is gone
/// Runs a transport until the process is killed, or its parent ends.
[[noreturn]] void serve(side& one, int control);

}  // namespace softverbs::cm::test
