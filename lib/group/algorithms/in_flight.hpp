#pragma once

#include "group/exchange.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace cordma::detail {

/// Transfers that were posted and not yet awaited, oldest first: at most `limit`, in the frame of a
/// coroutine. An empty message counts, and is not sent, since both sides know that it is empty.
template <class Transfer, unsigned limit>
class in_flight {
 public:
  class end_op;

  [[nodiscard]] bool is_empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool is_full() const noexcept { return count_ == limit; }
  template <class Slice>
  void post(exchange& x, unsigned peer, std::uint32_t step, const Slice& memory) noexcept {
    std::optional<Transfer>& last = transfers_[(first_ + count_++) % limit];
    if (!memory.empty()) last.emplace(x, peer, step, memory);
  }
  /// Waits for the oldest, and forgets it.
  [[nodiscard]] end_op oldest() noexcept { return end_op{*this}; }
  /// Forgets the oldest ones that have ended well.
  void forget_ended() noexcept {
    while (!is_empty()) {
      const std::optional<Transfer>& first = transfers_[first_];
      if (first && (!first->has_ended() || first->failed())) return;
      forget();
    }
  }

 private:
  void forget() noexcept {
    transfers_[first_].reset();
    first_ = (first_ + 1) % limit;
    --count_;
  }

  std::array<std::optional<Transfer>, limit> transfers_;
  unsigned first_ = 0;
  unsigned count_ = 0;
};

template <class Transfer, unsigned limit>
class [[nodiscard]] in_flight<Transfer, limit>::end_op : public operation_base<end_op> {
 public:
  using value_type = void;
  explicit end_op(in_flight& transfers) noexcept : transfers_{transfers} {}
  bool start(waiter& w, const environment& env) noexcept {
    return !first() || first()->start(w, env);
  }
  [[nodiscard]] bool failed() const noexcept { return first() && first()->failed(); }
  result<void> take_result() noexcept {
    result<void> outcome = first() ? first()->take_result() : result<void>{};
    transfers_.forget();
    return outcome;
  }

 private:
  [[nodiscard]] std::optional<Transfer>& first() const noexcept {
    return transfers_.transfers_[transfers_.first_];
  }
  in_flight& transfers_;
};

/// Returns how many segments a message has.
inline std::size_t segments_of(std::size_t size_bytes, std::size_t segment_bytes) noexcept {
  return size_bytes / segment_bytes + (size_bytes % segment_bytes != 0);
}
/// Returns segment `i` of a message; empty behind the last.
template <class Slice>
Slice segment_of(const Slice& message, std::size_t i, std::size_t segment_bytes) {
  const std::size_t size_bytes = message.size_bytes();
  const std::size_t offset = std::min(i * segment_bytes, size_bytes);
  return message.slice(offset, std::min(segment_bytes, size_bytes - offset));
}

}  // namespace cordma::detail
