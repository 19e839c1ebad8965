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
                                      datagram_request<N> request) {
  co_await find_route(from, address, request.to, request.path);
  co_return co_await request_op<datagram_request<N>>{sends_of(from), request};
}

/// Sends a datagram: at once, if the route is known, else after a search for it. A stop before it
/// is posted prevents the datagram.
template <std::size_t N>
class [[nodiscard]] send_to_op final : public operation_base<send_to_op<N>> {
 public:
  using value_type = std::size_t;

  send_to_op(datagram_state& from, const datagram_address& to, const send_request<N>& message)
      : from_{from}, address_{to}, request_{message} {}

  bool start(waiter& w, const environment& env) {
    if (route_to(from_, address_, request_.to, request_.path)) [[likely]]
      return posted_.emplace(sends_of(from_), request_).start(w, env);
    return searching_.emplace(find_route_and_send(keep(from_), address_, request_)).start(w, env);
  }
  [[nodiscard]] scheduler* own_scheduler() const noexcept {
    if (posted_) return posted_->own_scheduler();
    return searching_ ? nullptr : &scheduler_of(from_);
  }
  [[nodiscard]] bool failed() const noexcept {
    return posted_ ? posted_->failed() : searching_->failed();
  }
  value_type take() { return posted_ ? posted_->take() : searching_->take(); }
  result<value_type> take_result() {
    return posted_ ? posted_->take_result() : searching_->take_result();
  }

 private:
  datagram_state& from_;
  datagram_address address_;
  datagram_request<N> request_;
  std::optional<request_op<datagram_request<N>>> posted_;
  std::optional<task<value_type>> searching_;
};

}  // namespace cordma::detail
