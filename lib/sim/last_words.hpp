#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace cordma::sim::detail {

/// Calls a function once if the process is about to die: of an abort, a wrong access, an alarm, or
/// a sanitizer's error. Then the process dies as it would have died. A second fault ends the
/// function, as ten seconds do. \thread any: the function runs in a signal's handler.
/// \param act  gets the signal; 0: a sanitizer ends the process
void before_death(void (*act)(int signal));

/// Returns how a process ended that a signal has ended: "it died of SIGSEGV".
std::string death_of(int signal);

/// Text in memory of a fixed size, with a zero behind it. What does not fit is left out. Allocates
/// nothing: the heap of a process that dies may be broken.
class bounded_text {
 public:
  /// \param room  at least one byte
  explicit bounded_text(std::span<char> room) noexcept : room_{room} { room_[0] = 0; }
  bounded_text& operator+=(std::string_view more) noexcept {
    const std::size_t count = std::min(more.size(), room_.size() - 1 - size_);
    std::memcpy(room_.data() + size_, more.data(), count);
    size_ += count;
    room_[size_] = 0;
    return *this;
  }

 private:
  std::span<char> room_;
  std::size_t size_ = 0;
};

}  // namespace cordma::sim::detail
