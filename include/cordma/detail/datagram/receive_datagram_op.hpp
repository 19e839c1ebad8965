#pragma once

#include <cordma/datagram/datagram.hpp>
#include <cordma/detail/request/receive_op.hpp>

#include <array>
#include <cstddef>

namespace cordma::detail {

/// A socket as its receives know it.
struct datagram_receiver {
  receive_queue& queue;
  const datagram_address& address;
};
/// Makes the datagram that is taken next, all but its message.
CORDMA_EXPORT datagram next_without_message(const datagram_receiver& receiver) noexcept;

/// Waits for the next datagram; if `Posts`, posts a buffer of N slices first.
template <std::size_t N, bool Posts>
class [[nodiscard]] receive_datagram_op final
    : public operation_base<receive_datagram_op<N, Posts>>,
      private awaited_receive {
 public:
  using value_type = datagram;

  receive_datagram_op(const datagram_receiver& receiver,
                      const std::array<local_mr_slice, N>& buffer) noexcept
      : awaited_receive{receiver.queue}, address_{receiver.address}, buffer_{buffer} {}
  receive_datagram_op(receive_datagram_op&& other) noexcept
      : awaited_receive{other.queue()}, address_{other.address_}, buffer_{other.buffer_} {}

  bool start(waiter& w, const environment& env) noexcept {
    return awaited_receive::start(w, env, Posts, buffer_);
  }
  using awaited_receive::failed;
  using awaited_receive::own_scheduler;
  datagram take() {
    // The queue may be gone after a failure. Taking the message may give its slot to another.
    datagram taken = failed() ? datagram{} : next_without_message({queue(), address_});
    awaited_receive::take(taken);
    return taken;
  }
  result<datagram> take_result() noexcept {
    if (!failed()) return take();
    const result<message> none = awaited_receive::take_result();
    if (none.is_cancelled()) return cancelled_result;
    return none.failure();
  }

 private:
  const datagram_address& address_;
  std::array<local_mr_slice, N> buffer_;
};

}  // namespace cordma::detail
