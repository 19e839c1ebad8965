#pragma once

#include "target.hpp"

#include <cordma/base/unique_fd.hpp>

#include <sys/socket.h>
#include <cstddef>
#include <optional>
#include <string>

namespace top {

/// Fetches one page over HTTP/1.0 without blocking: whoever calls polls the descriptor. The answer
/// may come from anybody; its size is bounded.
class fetch {
 public:
  enum class state : unsigned char { connecting, sending, reading, done, failed };

  /// Begins to connect. A failure is told as the others are.
  explicit fetch(const target& from);

  [[nodiscard]] bool has_ended() const noexcept {
    return state_ == state::done || state_ == state::failed;
  }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// Returns what to poll for: POLLIN or POLLOUT.
  [[nodiscard]] short events() const noexcept;
  /// Goes on as far as it can without blocking.
  void advance();
  /// Ends the fetch as failed: the time is up.
  void give_up();

  [[nodiscard]] state now() const noexcept { return state_; }
  /// Returns the page, once `done`.
  [[nodiscard]] const std::string& body() const noexcept { return body_; }
  /// Returns why there is no page, once `failed`.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// Returns who listens at a Unix socket, as the kernel says.
  [[nodiscard]] const std::optional<ucred>& peer() const noexcept { return peer_; }

 private:
  void fail(std::string why);
  void fail(const char* call, int errno_value);
  void on_connected();
  void send();
  void receive();
  void take_answer();

  target from_;
  cordma::unique_fd fd_;
  state state_ = state::connecting;
  std::string request_;
  std::size_t sent_ = 0;
  std::string answer_;
  std::string body_;
  std::string reason_;
  std::optional<ucred> peer_;
};

}  // namespace top
