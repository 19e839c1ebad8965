#pragma once

#include "bounded.hpp"
#include "cordma.h"
#include "handles.hpp"

#include <cordma/connection/connection.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

namespace cordma::c {

using send_op = decltype(std::declval<connection&>().send(std::declval<local_mr_slice&>()));
using write_op = decltype(std::declval<connection&>().write(std::declval<local_mr_slice&>(),
                                                            std::declval<remote_mr_slice&>()));
using read_op = decltype(std::declval<connection&>().read(std::declval<local_mr_slice&>(),
                                                          std::declval<remote_mr_slice&>()));
using atomic_op =
    decltype(std::declval<connection&>().fetch_add(std::declval<remote_mr_slice&>(), 0));

class post_pool;

/// A request that tells the program of its end.
class post final : private waiter, private timer {
 public:
  explicit post(post_pool& of) noexcept : waiter{&on_end}, timer{&on_fire}, pool_{of} {}

  /// Starts the request. Returns CORDMA_OK if the program will be told of its end; what it already
  /// ended with otherwise, and the post is free again.
  template <class Op>
  int begin(scheduler& on, Op&& op, std::int64_t timeout_us);

  handle connection = 0;
  cordma_completed* completed = nullptr;
  void* user = nullptr;

 private:
  friend class post_pool;
  static std::coroutine_handle<> on_end(waiter& self) noexcept;
  static void on_fire(timer& self) noexcept;
  int settle(std::uint64_t& value) noexcept;

  post_pool& pool_;
  post* next_free_ = nullptr;
  bool has_expired_ = false;
  std::optional<stop_source> stop_;
  std::variant<std::monostate, send_op, write_op, read_op, atomic_op> op_;
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

template <class Op>
int post::begin(scheduler& on, Op&& op, std::int64_t timeout_us) {
  Op& here = op_.emplace<Op>(std::move(op));
  environment env{&on, {}};
  if (timeout_us >= 0) env.stop = stop_token{stop_.emplace()};
  if (!here.start(*this, env)) {
    if (timeout_us >= 0) on.arm(*this, on.about_after(span_of(timeout_us)));
    return CORDMA_OK;
  }
  if (!here.failed()) {
    on.schedule(*this);
    return CORDMA_OK;
  }
  std::uint64_t unused = 0;
  const int status = settle(unused);
  pool_.give_back(*this);
  return status;
}

}  // namespace cordma::c
