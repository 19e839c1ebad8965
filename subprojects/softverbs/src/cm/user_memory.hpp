#pragma once

#include "memory/guarded_copy.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>

// The program's memory, as the kernel sees it: an address that is not mapped is EFAULT.

namespace softverbs::cm {

/// The body of a command, and what its header says of the answer.
struct command_body {
  const void* in = nullptr;
  std::size_t in_bytes = 0;
  std::size_t out_bytes = 0;

  /// Copies the body. EINVAL when it is shorter than `needed`; what is missing beyond is zero.
  template <class Command>
  [[nodiscard]] int read(Command& command, std::size_t needed = sizeof(Command)) const noexcept {
    command = Command{};
    if (in_bytes < needed) return EINVAL;
    return guarded_copy(&command, in, std::min(in_bytes, sizeof command)) ? 0 : EFAULT;
  }
};

/// Writes an answer, shortened to the size that the program's header knows.
[[nodiscard]] inline int write_answer(std::uint64_t to, const void* answer,
                                      std::size_t bytes) noexcept {
  return guarded_copy(reinterpret_cast<void*>(static_cast<std::uintptr_t>(to)), answer, bytes)
             ? 0
             : EFAULT;
}

}  // namespace softverbs::cm
