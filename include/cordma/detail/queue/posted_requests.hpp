#pragma once

#include <cordma/base/result.hpp>
#include <cordma/detail/coro/frame_cache.hpp>
#include <cordma/detail/queue/send_operation.hpp>

#include <array>
#include <limits>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cordma {

namespace detail {
template <class... Requests>
class dropped_requests;
}

/// Keeps the requests of the send operation `Operation`, and the storage for their values.
template <class Operation, class... Requests>
class posted_requests : public Operation {
  static constexpr std::size_t count = sizeof...(Requests);
  static_assert(count <= std::numeric_limits<std::uint16_t>::max(), "too many for one doorbell");
  static constexpr bool has_atomic = ((Requests::kind == request_kind::atomic) || ...);

 public:
  explicit posted_requests(send_queue& queue, const Requests&... requests) noexcept
      : Operation{queue, count, values_before()}, requests_{requests...} {}
  posted_requests(posted_requests&& other) noexcept
      : Operation{static_cast<Operation&&>(other), values_before()},
        requests_{std::move(other.requests_)},
        values_before_{other.values_before_} {}
  /// Returns request `I`, which may change until it is posted.
  template <std::size_t I>
  [[nodiscard]] auto& request() noexcept {
    return std::get<I>(requests_);
  }
  ~posted_requests() override {
    if (this->is_known_to_queue()) [[unlikely]]
      leave_or_go_on();
  }

 protected:
  /// Takes over what another kind of operation has posted.
  template <class Other>
  explicit posted_requests(posted_requests<Other, Requests...>&& other) noexcept
      : Operation{static_cast<Other&&>(other), values_before()},
        requests_{std::move(other.requests_)},
        values_before_{other.values_before_} {}
  /// Returns the value of request `I`, which has succeeded.
  template <std::size_t I>
  auto value() const noexcept {
    const auto& request = std::get<I>(requests_);
    if constexpr (requires { request.value(); }) {
      return request.value();
    } else {
      return values_before_[I];
    }
  }

 private:
  template <class, class...>
  friend class posted_requests;

  void list_requests(send_operation::list_user use) noexcept final {
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
  /// Detaches an operation that waits for room. Requests that were posted, not awaited, move to a
  /// heap block and are posted when there is room. Without memory for the block they are withdrawn.
  [[gnu::noinline]] void leave_or_go_on() noexcept {
    if (!this->is_queued_handle()) return this->leave();
    try {
      static_cast<void>(new detail::dropped_requests<Requests...>{std::move(*this)});
    } catch (const std::bad_alloc&) {
      this->leave();
    }
  }

  std::tuple<Requests...> requests_;
  [[no_unique_address]] std::array<std::uint64_t, has_atomic ? count : 0> values_before_;
};

namespace detail {

/// Detached requests. The queue deletes the object once it has posted them.
template <class... Requests>
class dropped_requests final : public posted_requests<send_operation, Requests...>,
                               public frame_cache::recycled {
 public:
  template <class Operation>
  explicit dropped_requests(posted_requests<Operation, Requests...>&& dropped) noexcept
      : posted_requests<send_operation, Requests...>{std::move(dropped)} {
    this->give_to_queue();
  }
};

}  // namespace detail

/// One request that calls a function when it ends, mostly in the middle of a reap. The function may
/// destroy the object and post other requests, and must resume no coroutine.
/// \thread the executor's. \cost a slot and a doorbell; no allocation, no system call.
template <class Request, class Owner>
class told_request final : public posted_requests<send_operation, Request> {
 public:
  using function = void (*)(Owner&) noexcept;
  told_request(send_queue& queue, const Request& request, Owner& owner,
               function when_ended) noexcept
      : posted_requests<send_operation, Request>{queue, request},
        owner_{owner},
        tells_{when_ended} {}
  told_request(told_request&&) = delete;

  /// Returns the request's value, or why it failed. Call it once the request has ended.
  [[nodiscard]] result<typename Request::value_type> outcome() const noexcept {
    if (this->has_failed()) return this->to_failure();
    return this->template value<0>();
  }

 private:
  void on_end() noexcept override { tells_(owner_); }
  Owner& owner_;
  const function tells_;
};

}  // namespace cordma
