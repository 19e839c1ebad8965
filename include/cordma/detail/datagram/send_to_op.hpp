#pragma once

#include <cordma/coro/task.hpp>
#include <cordma/datagram/datagram.hpp>
#include <cordma/detail/datagram/route.hpp>
#include <cordma/detail/request/request_op.hpp>

#include <cstddef>
#include <optional>

namespace cordma::detail {

/// Finds the route to `address`, and sets destination and route of a request.
/// \errors as `datagram_socket::find_route`; errc::closed: the socket was dropped meanwhile.
CORDMA_EXPORT task<> find_route(counted_ref<datagram_state> from, datagram_address address,
                                request_destination& to, counted_ref<route>& path);

template <std::size_t N>
task<std::size_t> find_route_and_send(counted_ref<datagram_state> from, datagram_address address,
                                      send_request<N> message) {
  datagram_request<N> request{message};
  co_await find_route(from, address, request.to, request.path);
  co_return co_await request_op<datagram_request<N>>{sends_of(from), request};
}

/// Sends a datagram: at once, if the route is known when the operation is made, else after a search
/// for it. A stop before it is posted prevents the datagram.
template <std::size_t N>
class [[nodiscard]] send_to_op final : public operation_base<send_to_op<N>> {
 public:
  using value_type = std::size_t;

  send_to_op(send_queue& queue, const counted_ref<datagram_state>& from, const datagram_address& to,
             const send_request<N>& message)
      : posted_{queue, datagram_request<N>{message}} {
    auto& request = posted_.template request<0>();
    if (!route_to(from, to, request.to, request.path)) [[unlikely]]
      search_.emplace(find_route_and_send(from, to, request.message));
  }

  bool start(waiter& w, const environment& env) {
    if (!search_) [[likely]]
      return posted_.start(w, env);
    is_searching_ = true;
    return search_->start(w, env);
  }
  /// Returns null once a search has begun, because the queue may be gone.
  [[nodiscard]] scheduler* own_scheduler() const noexcept {
    return is_searching_ ? nullptr : posted_.own_scheduler();
  }
  [[nodiscard]] bool failed() const noexcept {
    return search_ ? search_->failed() : posted_.failed();
  }
  value_type take() { return search_ ? search_->take() : posted_.take(); }
  result<value_type> take_result() {
    return search_ ? search_->take_result() : posted_.take_result();
  }

 private:
  request_op<datagram_request<N>> posted_;
  std::optional<task<value_type>> search_;
  bool is_searching_ = false;
};

}  // namespace cordma::detail
