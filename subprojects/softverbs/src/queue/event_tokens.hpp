#pragma once

#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace softverbs {

/// The descriptor of a completion channel or of a context's events: an eventfd in semaphore mode
/// with a token for each queued event. Readers take theirs with read(2), which blocks, ends by a
/// signal, or does neither, as the program has arranged for the descriptor and the signal; then
/// they lock the events. An event that goes in between leaves a reader with a void token: it must
/// not take another's event, or the descriptor would be readable with nothing to read.
///
/// Thread: fd, put and take any; withdraw and spend under the lock of the events.
class event_tokens {
 public:
  event_tokens() : fd_{::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)} {
    if (fd_ < 0) throw std::system_error{errno, std::generic_category(), "eventfd"};
  }
  event_tokens(const event_tokens&) = delete;
  event_tokens& operator=(const event_tokens&) = delete;
  ~event_tokens() { ::close(fd_); }

  [[nodiscard]] int fd() const noexcept { return fd_; }
  void put() noexcept {
    // Fails only when 2^64 events are unread.
    [[maybe_unused]] const int put = ::eventfd_write(fd_, 1);
  }
  /// False with errno (EAGAIN, EINTR). Blocks unless the fd is O_NONBLOCK.
  [[nodiscard]] bool take() noexcept {
    eventfd_t one = 0;
    return ::read(fd_, &one, sizeof one) == sizeof one;
  }
  /// Whether the token that was taken stands for an event; if not, take another.
  [[nodiscard]] bool spend() noexcept {
    if (void_ == 0) return true;
    --void_;
    return false;
  }
  /// One event less to read.
  void withdraw() noexcept {
    eventfd_t one = 0;
    const iovec to{&one, sizeof one};
    if (::preadv2(fd_, &to, 1, -1, RWF_NOWAIT) < 0) ++void_;
  }

 private:
  int fd_;
  std::uint64_t void_ = 0;  ///< tokens that readers hold for events that are gone
};

}  // namespace softverbs
