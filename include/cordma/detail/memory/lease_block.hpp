#pragma once

#include <cordma/base/error.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/verbs/access.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>

namespace cordma {

template <class Block>
class block_list;

/// What stands behind every slice of memory that a peer lent: which connection it may be used on,
/// for what, and until when. Blocks are reused, never unmapped, so a slice can still be asked when
/// its lease and its connection are long gone. \thread that connection's executor's.
class CORDMA_EXPORT alignas(64) lease_block {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  /// A new life with one holder, of nothing yet. `queue`: the send queue that leads to the owner;
  /// it is compared, not looked into. \errors bad_alloc. \cost a few stores; seldom
  /// a mutex.
  static lease_block& make(const void* queue);
  void grant(verbs::access granted, time_point usable_until) noexcept {
    access_ = granted;
    usable_until_ = usable_until;
  }
  void hold() noexcept { ++holders_; }
  /// The last one to let go ends the life.
  void let_go() noexcept {
    if (--holders_ == 0) end_life();
  }

  [[nodiscard]] std::uint32_t generation() const noexcept {
    return generation_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] verbs::access access() const noexcept { return access_; }
  [[nodiscard]] time_point usable_until() const noexcept { return usable_until_; }
  void set_usable_until(time_point until) noexcept { usable_until_ = until; }
  /// From here on every use is refused with `why`; the first reason stays.
  void refuse(errc why) noexcept {
    if (refusal_ == errc{}) refusal_ = why;
  }

  /// Why a request of a slice of `generation` may not be posted on `queue`; none: it may, until
  /// `usable_until`.
  [[nodiscard]] errc refusal(std::uint32_t generation, const void* queue,
                             verbs::access wanted) const noexcept {
    if (generation != this->generation()) return errc::lease_ended;
    if (refusal_ != errc{}) return refusal_;
    if (queue != queue_) return errc::wrong_connection;
    return verbs::allows(access_, wanted) ? errc{} : errc::access_denied;
  }
  /// A request was posted, which holds the block until it completes.
  void used() noexcept {
    was_used_ = true;
    hold();
  }
  /// Whether requests are in flight, beside the one holder that there is.
  [[nodiscard]] bool is_in_use() const noexcept { return holders_ > 1; }
  /// Whether requests were posted since the last time it was asked.
  [[nodiscard]] bool take_use() noexcept { return std::exchange(was_used_, false); }

 private:
  friend class block_list<lease_block>;
  void end_life() noexcept;

  /// Asked of an old slice, too, when the block is another thread's by now.
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
