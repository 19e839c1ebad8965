#pragma once

#include "side.hpp"

#include <cordma/base/unique_fd.hpp>

#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace walk {

/// \errors what errno says.
inline void check(bool well, const char* what) {
  if (!well) throw std::system_error{errno, std::system_category(), what};
}

/// A fork that lives its life and ends. It is killed with this, and with its parent.
class walker {
 public:
  explicit walker(const std::function<void()>& work);
  walker(const walker&) = delete;
  walker& operator=(const walker&) = delete;
  ~walker();
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Readable when it has ended.
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// When it has ended: whether by itself.
  [[nodiscard]] bool has_ended_well() noexcept;

 private:
  pid_t pid_ = -1;
  cordma::unique_fd fd_;
};
using walkers = std::vector<std::unique_ptr<walker>>;

/// The two ends of a pair, for the program that watches them.
struct board {
  side asking, answering;
};
/// A board in memory that forks share. Lives as long as `walkers` do.
std::shared_ptr<board> make_board();

/// Waits until all have ended. Returns what has failed, or slept for longer than `patience` without
/// a step (ten times that if it spun). The text also has what both ends did then. Nothing: all is
/// well.
std::optional<std::string> watch(board& b, const walkers& all, std::chrono::milliseconds patience);

}  // namespace walk
