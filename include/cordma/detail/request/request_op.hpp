#pragma once

#include <cordma/detail/queue/posted_requests.hpp>
#include <cordma/detail/request/awaited_send.hpp>

namespace cordma {

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
