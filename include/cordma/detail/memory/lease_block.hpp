#pragma once

#include <cordma/base/error.hpp>
#include <cordma/verbs/access.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>

namespace cordma {

template <class Block>
class block_list;

/// Control block of a lease, to which every slice of lent memory refers. It names the allowed
/// connection, uses and time. Blocks are reused, never unmapped, so a slice can be checked long
/// after its lease and connection have ended. \thread that of the connection's executor.
class alignas(64) lease_block {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  /// Begins a lease with one holder and no rights yet. `queue` is the send queue that leads to the
  /// owner; it is compared, not dereferenced. \errors bad_alloc. \cost a few stores; seldom a
  /// mutex.
  static lease_block& make(const void* queue);
  void grant(verbs::access granted, time_point usable_until) noexcept {
    access_ = granted;
    usable_until_ = usable_until;
  }
  void acquire() noexcept { ++holders_; }
  /// Releases the block; the last release ends the lease.
  void release() noexcept {
    if (--holders_ == 0) dispose();
  }

  [[nodiscard]] std::uint32_t generation() const noexcept {
    return generation_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] verbs::access access() const noexcept { return access_; }
  [[nodiscard]] time_point usable_until() const noexcept { return usable_until_; }
  /// Refuses every use from now on with `why`; the first reason stays.
  void refuse(errc why) noexcept {
    if (refusal_ == errc{}) refusal_ = why;
  }

  /// Returns why a request with a slice of `generation` may not be posted on `queue`; none: it may,
  /// until `usable_until`.
  [[nodiscard]] errc refusal(std::uint32_t generation, const void* queue,
                             verbs::access wanted) const noexcept {
    if (generation != this->generation()) return errc::lease_ended;
    if (refusal_ != errc{}) return refusal_;
    if (queue != queue_) return errc::wrong_connection;
    return verbs::allows(access_, wanted) ? errc{} : errc::access_denied;
  }
  /// Notes a posted request, which keeps the block until it completes.
  void used() noexcept {
    was_used_ = true;
    acquire();
  }
  /// Returns true if requests are in flight; the only other holder is the caller's.
  [[nodiscard]] bool is_in_use() const noexcept { return holders_ > 1; }
  /// Returns true if requests were posted since the last call.
  [[nodiscard]] bool take_use() noexcept { return std::exchange(was_used_, false); }

 private:
  friend class block_list<lease_block>;
  void dispose() noexcept;

  /// Atomic, because an old slice may read it when the block belongs to another thread.
  std::atomic<std::uint32_t> generation_ = 0;
  std::uint32_t holders_ = 0;
  const void* queue_ = nullptr;
  time_point usable_until_{};
  verbs::access access_ = verbs::access::none;
  errc refusal_{};
  bool was_used_ = false;
  lease_block* next_free_ = nullptr;
};

}  // namespace cordma
