#pragma once

#include <sys/uio.h>

#include <cstdint>

// The descriptors of completion channels and contexts are eventfds in semaphore mode, with a token
// for each queued event. Readers take theirs with read(2), which blocks, ends by a signal, or does
// neither, as the program has arranged for the descriptor and the signal.

namespace softverbs {

/// One event less to read. When a reader was quicker its read finds no event, and reads again.
inline void take_token(int fd) noexcept {
  std::uint64_t one = 0;
  const iovec to{&one, sizeof one};
  [[maybe_unused]] const auto got = ::preadv2(fd, &to, 1, -1, RWF_NOWAIT);
}

}  // namespace softverbs
