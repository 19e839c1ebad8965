#pragma once

#include <cordma/coro/frame_cache.hpp>
#include <cordma/transfer/send_queue.hpp>

#include <algorithm>
#include <array>
#include <new>
#include <tuple>

namespace cordma {

/// One request, or several posted with one doorbell, as an operation; and as a handle, once posted.
///
/// Awaited directly it is posted when it starts. A stop before that means it never happens; after
/// it, only the waiting ends (`cancelled`): a posted request cannot be recalled, and its slot keeps
/// the memory until the completion. As a handle (`post`) it is on its way when it is made, can be
/// moved, awaited later (and again, after a stopped or timed-out wait), or dropped, which detaches
/// it and recalls nothing.
///
/// Gives the request's value; several: a tuple of them. Errors: `wc_errc::*` of the request that
/// failed (`failure::index` says which), and before posting `errc::stale_slice`,
/// `wrong_protection_domain`, `access_denied`, `too_many_slices`, `out_of_range`, `wrong_length`,
/// `misaligned`, `limit_exceeded`, `disconnected`, `not_supported` (the peer serves no READs); of
/// borrowed memory `lease_expired`, `lease_ended`, `wrong_connection`; of a handle that was posted
/// unsignaled `not_signaled`.
/// Thread: the executor's. Cost: one slot and one doorbell; no allocation, no system call of ours.
template <class... Requests>
class [[nodiscard]] request_op final : public operation_base<request_op<Requests...>>,
                                       public submission,
                                       public frame_cache::recycled {
  static constexpr std::size_t count = sizeof...(Requests);
  static constexpr bool is_batch = count > 1;
  static constexpr std::array<request_kind, count> kinds{Requests::kind...};
  template <class Request>
  static constexpr std::size_t sge_count() noexcept {
    if constexpr (requires(Request r) { r.local; }) {
      return std::tuple_size_v<decltype(Request::local.slices)>;
    } else {
      return 1;
    }
  }
  template <class Request>
  static constexpr bool may_wait_for_others() noexcept {
    return requires(const Request& r) { r.takes_receive(); };
  }
  static constexpr std::size_t sges_max = std::max({std::size_t{1}, sge_count<Requests>()...});
  static constexpr bool can_wait_for_others =
      !is_batch && sges_max == 1 && (may_wait_for_others<Requests>() && ...);
  static constexpr bool is_atomic = ((Requests::kind == request_kind::atomic) || ...);

 public:
  using value_type =
      std::conditional_t<is_batch, std::tuple<typename Requests::value_type...>,
                         std::tuple_element_t<0, std::tuple<typename Requests::value_type...>>>;

  request_op(send_queue& queue, const Requests&... requests) noexcept
      : submission{queue, count}, requests_{requests...} {
    // Only the last of a batch needs an entry of its own; who awaits needs one.
    leave_unsignaled(std::make_index_sequence<count>{});
  }
  request_op(request_op&&) noexcept = default;
  ~request_op() {
    if (state_ >= state::queued) [[unlikely]]
      leave();
  }

  /// Posts it now, or queues it behind those that wait for room.
  void post() noexcept {
    is_handle_ = true;
    submit_or_post();
  }

  /// The same, and a reserved slot will do (`send_queue::reserve`).
  void post_urgent() noexcept {
    is_urgent_ = true;
    is_handle_ = true;
    submit_or_post();
  }

  /// Its waiter is told in the middle of a reap, or of the queue pair's failure, rather than in a
  /// turn of its own. It may destroy this, and post.
  void tell_at_once() noexcept { tells_at_once_ = true; }

  // As an operation.
  bool start(waiter& w, const environment& env) noexcept {
    if (state_ != state::idle) return start_handle(w, env);
    if (env.stop.stop_requested()) [[unlikely]]
      return stopped();
    ask_for_entry();
    submit_or_post();
    if (has_ended()) [[unlikely]]
      return true;
    wait(w, env);
    return false;
  }
  [[nodiscard]] bool failed() const noexcept { return was_stopped_ || failure_; }
  value_type take() {
    if (failed()) [[unlikely]]
      return take_result().value();
    return values(std::make_index_sequence<count>{});
  }
  result<value_type> take_result() noexcept {
    if (was_stopped_) return cancelled_result;
    if (failure_) return failure_->to_failure(qp_num_);
    return values(std::make_index_sequence<count>{});
  }

 private:
  /// Of one that was posted before it was awaited, or awaited before.
  bool start_handle(waiter& w, const environment& env) noexcept {
    was_stopped_ = false;
    if (has_ended()) return true;
    if (env.stop.stop_requested()) [[unlikely]]
      return stopped();
    if (state_ == state::queued) ask_for_entry();
    if (!will_end()) return true;
    forget_waiter();  // Of a wait that was abandoned.
    wait(w, env);
    return false;
  }
  /// Somebody waits for it.
  void ask_for_entry() noexcept { std::get<count - 1>(requests_).flags.signaled = true; }
  /// Nobody holds it any more, and it has not ended.
  [[gnu::noinline]] void leave() noexcept {
    forget_waiter();
    if (state_ == state::in_flight) return detach();
    if (is_handle_ && go_on_alone()) return;
    list_hook<submission>::unlink();
    let_go();
  }
  template <std::size_t... I>
  void leave_unsignaled(std::index_sequence<I...>) noexcept {
    if constexpr (is_batch) {
      ((std::get<I>(requests_).flags.signaled = I + 1 == count), ...);
    }
  }
  template <std::size_t... I>
  value_type values(std::index_sequence<I...>) const noexcept {
    return value_type{value_of_request<I>()...};
  }
  template <std::size_t I>
  auto value_of_request() const noexcept {
    const auto& request = std::get<I>(requests_);
    if constexpr (requires { request.compare_or_add; }) {
      return atomic_values_[I];
    } else if constexpr (requires { request.result(); }) {
      return request.result();
    } else {
      std::size_t bytes = 0;
      for (const const_local_mr_slice& slice : request.local.slices) bytes += slice.size_bytes();
      return bytes;
    }
  }
  template <std::size_t I>
  [[nodiscard, gnu::always_inline]] request_shape shape() const noexcept {
    return std::get<I>(requests_).shape();
  }
  template <std::size_t... I>
  std::array<request_shape, count> shapes(std::index_sequence<I...>) const noexcept {
    return {shape<I>()...};
  }
  [[nodiscard]] std::array<request_shape, count> shapes() const noexcept {
    return shapes(std::make_index_sequence<count>{});
  }

  /// Once for each kind of request, not for each `co_await`.
  [[gnu::noinline]] void submit_or_post() noexcept {
    constexpr auto all = std::make_index_sequence<count>{};
    if (queue_->has_room_for(count) && try_hold(all)) [[likely]]
      return post_each<true>(all);
    submit();
  }
  template <std::size_t... I>
  [[gnu::always_inline]] bool try_hold(std::index_sequence<I...>) noexcept {
    std::size_t held = 0;
    const bool all = ((queue_->try_hold(shape<I>()) && ++held > 0) && ...);
    if (!all) ((I < held ? queue_->let_go(shape<I>()) : void()), ...);
    return all;
  }
  std::optional<request_outcome> hold() noexcept override {
    const auto all = shapes();
    for (std::uint32_t i = 0; i < count; ++i) {
      std::optional<request_outcome> why = queue_->hold(all[i]);
      if (!why) continue;
      for (std::uint32_t held = 0; held < i; ++held) queue_->let_go(all[held]);
      why->index = i;
      return why;
    }
    return std::nullopt;
  }
  void let_go() noexcept override {
    for (const request_shape& request : shapes()) queue_->let_go(request);
  }
  void destroy() noexcept override { delete this; }
  void post_now() noexcept override { post_each<false>(std::make_index_sequence<count>{}); }
  /// `IsLikeMost`: `try_hold` took hold of them, no slice is empty.
  template <bool IsLikeMost, std::size_t... I>
  [[gnu::always_inline]] void post_each(std::index_sequence<I...>) noexcept {
    if (((queue_->lease_refusal(shape<I>()) != errc{}) || ...)) [[unlikely]]
      return refuse();
    if constexpr (IsLikeMost && can_wait_for_others) {
      if (!is_handle_ && queue_->batches(shape<0>()))
        return queue_->batch(*this, std::get<0>(requests_));
    }
    std::array<ibv_send_wr, count> wrs;
    std::array<std::array<ibv_sge, sges_max>, count> sges;
    const std::uint32_t signaled_before = queue_->begin_post(*this, count);
    ((send_queue::clear(wrs[I]), std::get<I>(requests_).fill(wrs[I]),
      wrs[I].next = I + 1 < count ? &wrs[I + 1] : nullptr,
      queue_->template occupy<IsLikeMost>(*this, I, shape<I>(), wrs[I], sges[I].data())),
     ...);
    ibv_send_wr* bad = nullptr;
    if (const int rc = queue_->ring(count, wrs[0], bad); rc != 0) [[unlikely]]
      return post_failed({signaled_before, rc, bad}, wrs);
    (queue_->count_posted(kinds[I], first_ + std::uint32_t(I)), ...);
  }
  [[gnu::noinline]] void refuse() noexcept { queue_->post_refused(*this, shapes()); }
  [[gnu::noinline]] void post_failed(const send_queue::post_failure& why,
                                     std::span<const ibv_send_wr> wrs) noexcept {
    queue_->post_failed(*this, why, wrs);
  }
  void store(std::uint32_t index, std::uint64_t value) noexcept override {
    if constexpr (is_atomic) atomic_values_[index] = value;
  }

  [[nodiscard]] request_kind kind_of(std::uint32_t index) const noexcept override {
    return kinds[index];
  }

  /// Dropped while it waits for room: moves to a block of its own, to be posted in its turn.
  /// Without memory for that it is withdrawn.
  bool go_on_alone() noexcept {
    try {
      auto* const alone = new request_op{std::move(*this)};
      alone->owns_itself_ = true;
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  std::tuple<Requests...> requests_;
  [[no_unique_address]] std::array<std::uint64_t, is_atomic ? count : 0> atomic_values_{};
};

}  // namespace cordma
