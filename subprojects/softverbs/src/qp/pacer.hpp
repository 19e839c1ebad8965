#pragma once

#include "wire/time.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace softverbs {

/// The rate limit of a queue pair (ibv_modify_qp_rate_limit(3)): a bucket of `burst` bytes that
/// fills at the rate. Bytes beyond it are a debt, which the next ones wait for. Under
/// qp_slot::send.
class pacer {
 public:
  using time = clock::time_point;
  using duration = std::chrono::nanoseconds;

  /// A burst that the program does not set has this length, or that of a millisecond.
  static constexpr std::uint64_t burst_default = 64 * 1024;
  /// A paced queue pair goes on when so much may be sent, or the burst.
  static constexpr std::uint64_t resume_bytes = 4096;

  /// Limits to `kbps`, thousands of bits a second, from `now` on; 0: without limit.
  void limit(std::uint32_t kbps, std::uint32_t burst_bytes, time now) noexcept {
    kbps_ = kbps;
    if (kbps == 0) return;
    burst_ = burst_bytes != 0 ? burst_bytes
                              : std::max(burst_default, bytes_in(std::chrono::milliseconds{1}));
    paid_ = now;
  }
  [[nodiscard]] bool is_on() const noexcept { return kbps_ != 0; }

  /// Returns how many bytes may be sent at `now`.
  [[nodiscard]] std::uint64_t budget(time now) const noexcept {
    if (now >= paid_) return burst_;
    const std::uint64_t owed = bytes_in(paid_ - now) + 1;
    return owed < burst_ ? burst_ - owed : 0;
  }
  /// Notes that so many bytes were sent at `now`.
  void sent(std::uint64_t bytes, time now) noexcept {
    paid_ = std::max(paid_, now) + time_of(bytes);
  }
  /// Returns when enough may be sent to go on.
  [[nodiscard]] time resumes_at() const noexcept {
    return paid_ - time_of(burst_ - std::min(burst_, resume_bytes));
  }

 private:
  /// A thousand bits a second are a byte in eight milliseconds.
  static constexpr std::uint64_t byte_ns_at_1_kbps = 8'000'000;

  /// Rounded up, so that the rate is never exceeded.
  [[nodiscard]] duration time_of(std::uint64_t bytes) const noexcept {
    return duration{(bytes * byte_ns_at_1_kbps + kbps_ - 1) / kbps_};
  }
  /// No overflow: the span is of at most a message and a burst, or a millisecond.
  [[nodiscard]] std::uint64_t bytes_in(duration span) const noexcept {
    return static_cast<std::uint64_t>(span.count()) * kbps_ / byte_ns_at_1_kbps;
  }

  std::uint32_t kbps_ = 0;
  std::uint64_t burst_ = 0;
  time paid_{};  ///< when all that was sent is paid for
};

}  // namespace softverbs
