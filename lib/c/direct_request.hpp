#pragma once

#include "bounded.hpp"

#include "queue/send_queue.hpp"

#include <cordma/detail/queue/posted_requests.hpp>

#include <cstdint>

namespace cordma::c {

/// A request that its own thread polls for: its end tells nobody unless polling did not end it.
template <class Request>
class direct_request final : public posted_requests<send_operation, Request>, private timer {
 public:
  direct_request(send_queue& queue, const Request& request, std::int64_t timeout_us) noexcept
      : posted_requests<send_operation, Request>{queue, request},
        timer{&on_fire},
        timeout_us_{timeout_us} {}
  direct_request(direct_request&&) = delete;

  /// Posts the request, or queues it for room. Returns true if it has ended.
  bool begin() noexcept {
    this->post_awaited();
    return this->has_ended();
  }
  /// Returns true if the request has ended, or has no time left.
  [[nodiscard]] bool take_ready() const noexcept { return this->has_ended() || timeout_us_ == 0; }
  /// Waits for the end, with the deadline.
  class rest_op;
  [[nodiscard]] rest_op rest(scheduler& on) noexcept { return rest_op{*this, on}; }

  /// Gives the value. A request that is late goes on, or leaves the queue if it waits for room.
  /// \errors errc::timed_out; what the device or the queue says.
  auto take() const {
    if (!this->has_ended()) [[unlikely]]
      throw_timed_out();
    if (this->has_failed()) [[unlikely]]
      detail::throw_error(this->to_failure());
    return this->template value<0>();
  }

 private:
  void on_end() noexcept override { tell(); }
  static void on_fire(timer& self) noexcept { static_cast<direct_request&>(self).tell(); }
  void tell() noexcept {
    if (waiter* const told = parent_.take()) on_->schedule(*told);
  }

  const std::int64_t timeout_us_;
  scheduler* on_ = nullptr;
  waiter_ref parent_;
};

template <class Request>
class direct_request<Request>::rest_op {
 public:
  using value_type = void;
  rest_op(direct_request& of, scheduler& on) noexcept : request_{of}, on_{on} {}
  bool start(waiter& w, const environment&) noexcept {
    if (request_.has_ended()) return true;
    request_.on_ = &on_;
    request_.parent_.set(w);
    const std::int64_t timeout_us = request_.timeout_us_;
    if (timeout_us >= 0) on_.arm(request_, on_.about_after(span_of(timeout_us)));
    return false;
  }
  [[nodiscard]] bool failed() const noexcept { return false; }
  void take() noexcept {}
  result<void> take_result() noexcept { return {}; }

 private:
  direct_request& request_;
  scheduler& on_;
};

}  // namespace cordma::c
