#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/queue/posted_requests.hpp>

#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>

namespace cordma {

/// A send operation that coroutines await, one after another: a handle can be awaited again after a
/// stopped wait.
/// \thread the executor's.
class CORDMA_EXPORT awaited_send : public send_operation {
 public:
  ~awaited_send() override { forget_waiter(); }

  [[nodiscard]] bool failed() const noexcept { return was_stopped_ || has_failed(); }
  /// Returns the scheduler on which the operation ends. Null once the operation has ended, because
  /// the queue may be gone.
  [[nodiscard]] scheduler* own_scheduler() const noexcept;
  /// Posts the operation, unless it was posted before, and notifies `w` of its end. Returns true if
  /// it has ended.
  bool start(waiter& w, const environment& env) noexcept;

 protected:
  awaited_send(send_queue& queue, std::uint16_t count, std::uint64_t* values_before) noexcept
      : send_operation{queue, count, values_before} {}
  awaited_send(awaited_send&& other, std::uint64_t* values_before) noexcept;

  [[nodiscard]] bool was_stopped() const noexcept { return was_stopped_; }
  [[noreturn]] void throw_outcome() const;
  /// Leaves the queue, before destruction. The waiter is not notified: it destroys this operation,
  /// or is gone.
  void leave() noexcept {
    forget_waiter();
    send_operation::leave();
  }

 private:
  /// Waiter and stop callback of one wait. Destroying the coroutine unlinks its waiter.
  struct wait_state : stop_callback {
    explicit wait_state(awaited_send& o) noexcept : stop_callback{&on_stop}, owner{o} {}
    awaited_send& owner;
    waiter_ref awaiter;
    scheduler* resumes_on = nullptr;
  };

  static void on_stop(stop_callback& self) noexcept;
  void forget_waiter() noexcept {
    if (!is_awaited_) return;
    is_awaited_ = false;
    std::destroy_at(&wait_);
  }
  void on_end() noexcept final;
  /// Ends this wait after a stop. Returns true.
  bool stopped() noexcept;

  bool is_awaited_ = false;   // `wait_` is constructed.
  bool was_stopped_ = false;  // A stop ended this wait; a handle can be awaited again.
  union {
    wait_state wait_;
  };
};

/// One request, or several posted with one doorbell, as an operation; once posted, as a handle.
///
/// An operation that is awaited directly is posted when it starts. A stop before that prevents the
/// request. A later stop ends only the wait (`cancelled`): a posted request cannot be recalled, and
/// its slot keeps the memory until the completion.
///
/// A handle (`post`) is posted when it is made. It can be moved, awaited later, awaited again after
/// a stopped or timed-out wait, or dropped. Dropping it detaches it and recalls nothing.
///
/// The operation gives the request's value, or a tuple of the values of several.
/// \errors `wc_errc::*` of the failed request, whose index is `failure::index`. Before posting:
///   `errc::stale_slice`, `wrong_protection_domain`, `access_denied`, `too_many_slices`,
///   `out_of_range`, `wrong_length`, `misaligned`, `limit_exceeded`, `disconnected`, or
///   `not_supported` (the peer serves no READs). Borrowed memory: `lease_expired`, `lease_ended`,
///   `wrong_connection`. A handle that was posted unsignaled: `not_signaled`.
/// \thread the executor's.
/// \cost one slot per request and one doorbell; no allocation, no system call.
template <class... Requests>
class [[nodiscard]] request_op final : public operation_base<request_op<Requests...>>,
                                       public posted_requests<awaited_send, Requests...> {
  using values = std::tuple<typename Requests::value_type...>;
  static constexpr bool is_batch = sizeof...(Requests) > 1;

 public:
  using value_type = std::conditional_t<is_batch, values, std::tuple_element_t<0, values>>;
  using posted_requests<awaited_send, Requests...>::posted_requests;

  value_type take() {
    if (this->failed()) [[unlikely]]
      this->throw_outcome();
    return [this]<std::size_t... I>(std::index_sequence<I...>) {
      return value_type{this->template value<I>()...};
    }(std::index_sequence_for<Requests...>{});
  }
  result<value_type> take_result() {
    if (this->was_stopped()) return cancelled_result;
    if (this->has_failed()) return this->to_failure();
    return take();
  }
};

}  // namespace cordma
