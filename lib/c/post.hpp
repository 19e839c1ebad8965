#pragma once

#include "bounded.hpp"
#include "cordma.h"
#include "handles.hpp"
#include "queue/send_queue.hpp"

#include <cordma/detail/queue/posted_requests.hpp>
#include <cordma/queue/work_request.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

namespace cordma::c {

class post_pool;

/// A request that tells the program of its end, from the ready list as a coroutine would.
class post final : private waiter, private timer {
 public:
  explicit post(post_pool& of) noexcept : waiter{&on_ready}, timer{&on_fire}, pool_{of} {}

  /// Posts the request. Returns CORDMA_OK if the program will be told of its end. Otherwise the
  /// request has failed at once, and this object is free again.
  template <class Request>
  int begin(scheduler& on, send_queue& queue, const Request& request, std::int64_t timeout_us);

  handle connection = 0;
  cordma_completed* completed = nullptr;
  void* user = nullptr;

 private:
  friend class post_pool;

  template <class Request>
  class told final : public posted_requests<send_operation, Request> {
   public:
    told(send_queue& queue, const Request& request, post& owner) noexcept
        : posted_requests<send_operation, Request>{queue, request}, owner_{owner} {}
    void begin() noexcept { this->post_awaited(); }
    /// Gives the value. \errors errc::timed_out if the request has not ended; its failure.
    [[nodiscard]] std::uint64_t take() const {
      if (!this->has_ended()) throw_timed_out();
      if (this->has_failed()) detail::throw_error(this->to_failure());
      return this->template value<0>();
    }

   private:
    void on_end() noexcept override { owner_.schedule(); }
    post& owner_;
  };
  void schedule() noexcept {
    if (is_begun_ && !list_hook<waiter>::is_linked()) on_->schedule(*this);
  }
  static std::coroutine_handle<> on_ready(waiter& self) noexcept;
  static void on_fire(timer& self) noexcept { static_cast<post&>(self).schedule(); }
  int settle(std::uint64_t& value) noexcept;

  post_pool& pool_;
  post* next_free_ = nullptr;
  scheduler* on_ = nullptr;
  bool is_begun_ = false;  // An end at once is told by `begin`.
  std::variant<std::monostate, told<send_request<1>>, told<write_request<1>>, told<read_request<1>>,
               told<atomic_request>>
      request_;
};

/// Posts of one context, which are used again: once warm, none is allocated.
class post_pool {
 public:
  post_pool() = default;
  post_pool(post_pool&&) = delete;

  /// \errors `std::bad_alloc`.
  post& take() {
    if (free_ == nullptr) grow();
    post& taken = *free_;
    free_ = taken.next_free_;
    ++in_flight_;
    return taken;
  }
  void give_back(post& one) noexcept {
    one.next_free_ = free_;
    free_ = &one;
    --in_flight_;
  }
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }

 private:
  void grow();

  std::vector<std::unique_ptr<post>> made_;
  post* free_ = nullptr;
  std::size_t in_flight_ = 0;
};

template <class Request>
int post::begin(scheduler& on, send_queue& queue, const Request& request, std::int64_t timeout_us) {
  on_ = &on;
  auto& here = request_.emplace<told<Request>>(queue, request, *this);
  here.begin();
  is_begun_ = true;
  if (!here.has_ended()) {
    if (timeout_us >= 0) on.arm(*this, on.about_after(span_of(timeout_us)));
    return CORDMA_OK;
  }
  if (!here.has_failed()) {
    schedule();
    return CORDMA_OK;
  }
  std::uint64_t unused = 0;
  const int status = settle(unused);
  pool_.give_back(*this);
  return status;
}

}  // namespace cordma::c
