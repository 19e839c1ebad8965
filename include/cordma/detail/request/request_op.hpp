#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/queue/posted_requests.hpp>

#include <memory>
#include <tuple>
#include <utility>

namespace cordma {

/// A send operation that a coroutine awaits, or several, one after the other: a handle can be
/// awaited again after a wait that was stopped.
/// \thread the executor's.
class CORDMA_EXPORT awaited_send : public send_operation {
 public:
  ~awaited_send() override { forget_waiter(); }

  [[nodiscard]] bool failed() const noexcept { return was_stopped_ || has_failed(); }
  /// The one that it ends on. Null once it has ended: the queue may be gone.
  [[nodiscard]] scheduler* own_scheduler() const noexcept;
  /// Posts it, unless it was posted before, and has `w` told when it has ended. True: it has.
  bool start(waiter& w, const environment& env) noexcept;

 protected:
  awaited_send(send_queue& queue, std::uint16_t count, std::uint64_t* values_before) noexcept
      : send_operation{queue, count, values_before} {}
  awaited_send(awaited_send&& other, std::uint64_t* values_before) noexcept;

  [[nodiscard]] bool was_stopped() const noexcept { return was_stopped_; }
  /// Leaves the queue, before it is destroyed. The waiter is not told: it is what destroys this
  /// operation, or is gone.
  void leave() noexcept {
    forget_waiter();
    send_operation::leave();
  }

 private:
  /// A coroutine that is destroyed meanwhile takes its waiter out.
  struct wait_state : stop_callback {
    explicit wait_state(awaited_send& o) noexcept : stop_callback{&on_stop}, owner{o} {}
    awaited_send& owner;
    waiter_ref who;
    scheduler* resumes_on = nullptr;
  };

  static void on_stop(stop_callback& self) noexcept;
  void forget_waiter() noexcept {
    if (!is_awaited_) return;
    is_awaited_ = false;
    std::destroy_at(&wait_);
  }
  void on_end() noexcept final;
  /// A stop ends this wait. True.
  bool stopped() noexcept;

  bool is_awaited_ = false;   // `wait_` is there.
  bool was_stopped_ = false;  // This wait was; a handle can be awaited again.
  union {
    wait_state wait_;
  };
};

/// One request, or several posted with one doorbell, as an operation; and as a handle, once posted.
///
/// Awaited directly it is posted when it starts. A stop before that means it never happens; after
/// it, only the waiting ends (`cancelled`): a posted request cannot be recalled, and its slot keeps
/// the memory until the completion. As a handle (`post`) it is on its way when it is made, can be
/// moved, awaited later (and again, after a stopped or timed-out wait), or dropped, which detaches
/// it and recalls nothing.
///
/// Gives the request's value; several: a tuple of them. \errors `wc_errc::*` of the request that
/// failed (`failure::index` says which), and before posting `errc::stale_slice`,
/// `wrong_protection_domain`, `access_denied`, `too_many_slices`, `out_of_range`, `wrong_length`,
/// `misaligned`, `limit_exceeded`, `disconnected`, `not_supported` (the peer serves no READs); of
/// borrowed memory `lease_expired`, `lease_ended`, `wrong_connection`; of a handle that was posted
/// unsignaled `not_signaled`.
/// \thread the executor's. \cost a slot a request and one doorbell; no allocation, no system call.
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
      return take_result().value();
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
