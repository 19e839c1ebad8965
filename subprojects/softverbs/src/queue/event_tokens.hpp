#pragma once

#include "wire/no_cancellation.hpp"

#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace softverbs {

class event_tokens;

/// Hears of the tokens of a simulated host.
class token_watcher {
 public:
  /// An event has come. \thread under the lock of the events.
  virtual void on_token(const event_tokens& of) noexcept = 0;
  /// The descriptor is about to be closed.
  virtual void on_close(const event_tokens& of) noexcept = 0;

 protected:
  ~token_watcher() = default;
};

/// The descriptor of a completion channel or of a context's events: an eventfd in semaphore mode
/// with a token for each queued event. A reader takes a token with read(2), which blocks or ends by
/// a signal as the program has arranged; then it locks the events. An event that is dropped in
/// between leaves the reader with a void token. With a void token, a reader must not take another
/// event: the descriptor would be readable with nothing to read.
///
/// \thread fd, put and take any; withdraw and spend under the lock of the events.
class event_tokens {
 public:
  event_tokens() : fd_{::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)} {
    if (fd_ < 0) throw std::system_error{errno, std::generic_category(), "eventfd"};
  }
  event_tokens(const event_tokens&) = delete;
  event_tokens& operator=(const event_tokens&) = delete;
  ~event_tokens() {
    if (watcher_ != nullptr) watcher_->on_close(*this);
    const no_cancellation wholly;
    ::close(fd_);
  }

  [[nodiscard]] int fd() const noexcept { return fd_; }
  void put() noexcept {
    if (is_written_) write(1);
    if (watcher_ == nullptr) [[likely]]
      return;
    ++count_;
    watcher_->on_token(*this);
  }
  /// False with errno (EAGAIN, EINTR). Blocks unless the fd is O_NONBLOCK. A cancellation point.
  [[nodiscard]] bool take() {
    if (!is_written_ && count_ != 0) {
      --count_;
      return true;
    }
    eventfd_t one = 0;
    if (::read(fd_, &one, sizeof one) != sizeof one) return false;
    if (watcher_ != nullptr) --count_;
    return true;
  }
  /// True if the taken token stands for an event; false: take another.
  [[nodiscard]] bool spend() noexcept {
    if (void_ == 0) return true;
    --void_;
    return false;
  }
  /// Takes back the token of a dropped event.
  void withdraw() noexcept {
    if (!is_written_) {
      if (count_ == 0)
        ++void_;
      else
        --count_;
      return;
    }
    const no_cancellation wholly;
    eventfd_t one = 0;
    const iovec to{&one, sizeof one};
    if (::preadv2(fd_, &to, 1, -1, RWF_NOWAIT) < 0)
      ++void_;
    else if (watcher_ != nullptr)
      --count_;
  }

  // ---- a simulation. \thread the simulation's
  /// \param is_written  false: the kernel need not know whether the descriptor is readable
  void watch(token_watcher* by, bool is_written = true) noexcept {
    if (is_written && !is_written_ && count_ != 0) write(count_);
    watcher_ = by;
    is_written_ = is_written;
  }
  /// True if the descriptor is readable; `watch` was called.
  [[nodiscard]] bool is_readable() const noexcept { return count_ != 0; }

 private:
  void write(std::uint64_t tokens) const noexcept {
    const no_cancellation wholly;
    // Fails only when 2^64 events are unread.
    [[maybe_unused]] const int written = ::eventfd_write(fd_, tokens);
  }

  int fd_;
  bool is_written_ = true;            ///< false: only `count_` knows of the tokens
  std::uint64_t void_ = 0;            ///< tokens that readers hold for dropped events
  token_watcher* watcher_ = nullptr;  ///< null: nobody simulates
  std::uint64_t count_ = 0;           ///< unread tokens, if there is a watcher
};

}  // namespace softverbs
