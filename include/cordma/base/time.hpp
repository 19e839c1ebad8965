#pragma once

#include <chrono>
#include <compare>
#include <type_traits>

namespace cordma {

using duration = std::chrono::steady_clock::duration;
using time_point = std::chrono::steady_clock::time_point;

/// A length of time in any unit, capped at the clock's range: `std::chrono::milliseconds::max()`
/// means for ever and does not overflow.
class time_span {
 public:
  constexpr time_span() noexcept = default;
  template <class Rep, class Period>
  constexpr time_span(std::chrono::duration<Rep, Period> length) noexcept  // NOLINT: the same.
      : length_{saturated(length)} {}
  constexpr operator duration() const noexcept { return length_; }  // NOLINT
  constexpr auto operator<=>(const time_span&) const noexcept = default;

 private:
  template <class Rep, class Period>
  static constexpr duration saturated(std::chrono::duration<Rep, Period> length) noexcept {
    constexpr double limit = 9.2e18;  // Nanoseconds that fit 64 bits: 292 years.
    static_assert(std::is_same_v<duration, std::chrono::nanoseconds>);
    const double about = std::chrono::duration<double, std::nano>{length}.count();
    if (about >= limit) return duration::max();
    if (about <= -limit) return duration::min();
    return std::chrono::duration_cast<duration>(length);
  }
  static constexpr duration saturated(duration length) noexcept { return length; }

  duration length_{};
};

namespace detail {

/// Returns `start` plus `span`; the end of time when the clock cannot count that far.
constexpr time_point after(time_point start, time_span span) noexcept {
  const duration length = span;
  return length > time_point::max() - start ? time_point::max() : start + length;
}

}  // namespace detail
}  // namespace cordma
