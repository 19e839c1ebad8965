#pragma once

#include <cordma/coro/scheduler.hpp>

#include <algorithm>
#include <utility>

namespace cordma {

/// Decides how long to poll before sleeping. A sleep shorter than the longest spin would have been
/// better spent polling, so the next spin is longer. After a longer sleep there is no spin. The
/// rule is that of KVM's halt polling (Linux, Documentation/virt/kvm/halt-polling.rst).
class spin_window {
 public:
  /// `max` bounds a spin, from the moment when nothing was left. The first spin is that long.
  explicit spin_window(duration max) noexcept : max_{max}, length_{max} {}

  /// Notes that nothing was found. Returns true to poll on; otherwise the caller may sleep.
  bool should_spin(time_point now) noexcept {
    if (!std::exchange(is_empty_, true)) empty_since_ = now;
    has_slept_ = now - empty_since_ >= length_;
    return !has_slept_;
  }
  /// Notes that something was found. Returns true if that took no sleep; otherwise the caller calls
  /// `woke`.
  bool found() noexcept {
    if (!is_empty_) [[likely]]
      return true;
    is_empty_ = false;
    return !has_slept_;
  }
  void woke(time_point now) noexcept {
    has_slept_ = false;
    const bool was_soon = now - empty_since_ < max_;
    length_ = was_soon ? std::min(std::max(2 * length_, max_ / first_part), max_) : duration{0};
  }

 private:
  static constexpr int first_part = 16;

  duration max_;
  duration length_;
  time_point empty_since_{};
  bool is_empty_ = false;
  bool has_slept_ = false;
};

}  // namespace cordma
