#pragma once

#include <cordma/detail/coro/frame_cache.hpp>
#include <cordma/detail/queue/send_operation.hpp>

#include <array>
#include <limits>
#include <new>
#include <tuple>
#include <utility>

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
/// Thread: the executor's. Cost: a slot a request and one doorbell; no allocation, no system call.
template <class... Requests>
class [[nodiscard]] request_op final : public operation_base<request_op<Requests...>>,
                                       public send_operation,
                                       public frame_cache::recycled {
  static constexpr std::size_t count = sizeof...(Requests);
  static_assert(count <= std::numeric_limits<std::uint16_t>::max(), "too many for one doorbell");
  using values = std::tuple<typename Requests::value_type...>;
  static constexpr bool is_batch = count > 1;
  static constexpr bool has_atomic = ((Requests::kind == request_kind::atomic) || ...);

 public:
  using value_type = std::conditional_t<is_batch, values, std::tuple_element_t<0, values>>;

  explicit request_op(send_queue& queue, const Requests&... requests) noexcept
      : send_operation{queue, count, values_before()}, requests_{requests...} {}
  request_op(request_op&& other) noexcept
      : send_operation{static_cast<send_operation&&>(other), values_before()},
        requests_{static_cast<std::tuple<Requests...>&&>(other.requests_)},
        values_before_{other.values_before_} {}
  ~request_op() override {
    if (is_known_to_queue()) [[unlikely]]
      leave_or_go_on();
  }

  value_type take() {
    if (failed()) [[unlikely]]
      return take_result().value();
    return [this]<std::size_t... I>(std::index_sequence<I...>) {
      return value_type{this->template value_of_request<I>()...};
    }(std::make_index_sequence<count>{});
  }
  result<value_type> take_result() {
    if (was_stopped()) return cancelled_result;
    if (failed()) return to_failure();
    return take();
  }

 private:
  void list_requests(list_user use) noexcept override {
    std::apply(
        [&](const Requests&... each) {
          const std::array<wr_summary, count> summaries{each.summary()...};
          std::array<ibv_send_wr, count> wrs;
          std::array<ibv_sge, (Requests::sge_count + ...)> sges;
          use(*this, {summaries, wrs.data(), sges.data()});
        },
        requests_);
  }
  std::uint64_t* values_before() noexcept { return has_atomic ? values_before_.data() : nullptr; }
  template <std::size_t I>
  auto value_of_request() const noexcept {
    const auto& request = std::get<I>(requests_);
    if constexpr (std::tuple_element_t<I, std::tuple<Requests...>>::kind == request_kind::atomic) {
      return values_before_[I];
    } else {
      return request.value();
    }
  }
  /// Dropped while it waits for room, a handle moves to a block of its own, to be posted in its
  /// turn. Without memory for that it is withdrawn.
  [[gnu::noinline]] void leave_or_go_on() noexcept {
    if (!is_queued_handle()) return leave();
    forget_waiter();
    try {
      (new request_op{std::move(*this)})->give_to_queue();
    } catch (const std::bad_alloc&) {
      leave();
    }
  }

  std::tuple<Requests...> requests_;
  [[no_unique_address]] std::array<std::uint64_t, has_atomic ? count : 0> values_before_;
};

}  // namespace cordma
