#pragma once

#include <unistd.h>

#include <utility>

namespace cordma {

/// Owns a file descriptor. Move-only; closes it when destroyed.
class unique_fd {
 public:
  unique_fd() noexcept = default;
  explicit unique_fd(int fd) noexcept : fd_{fd} {}
  unique_fd(unique_fd&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  unique_fd& operator=(unique_fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~unique_fd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  /// Returns the descriptor, which is the caller's from now on.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  // There is no conversion to bool: descriptor 0 is valid, and would read as false.
  explicit operator bool() const = delete;

 private:
  int fd_ = -1;
};

}  // namespace cordma
