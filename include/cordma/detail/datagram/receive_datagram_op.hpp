#pragma once

#include <cordma/datagram/datagram.hpp>
#include <cordma/detail/queue/datagram_header.hpp>
#include <cordma/detail/request/receive_op.hpp>

#include <array>
#include <cstddef>

namespace cordma::detail {

/// Returns what came in front of the datagram that `queue` gives next.
CORDMA_EXPORT datagram_header next_header(receive_queue& queue) noexcept;
/// `receiver` is the address of the socket that received it.
CORDMA_EXPORT datagram made_datagram(const message& taken, const datagram_header& header,
                                     const datagram_address& receiver) noexcept;

/// Waits for the next datagram; if `Posts`, posts a buffer of N slices first.
template <std::size_t N, bool Posts>
class [[nodiscard]] receive_datagram_op final
    : public operation_base<receive_datagram_op<N, Posts>>,
      private awaited_receive {
 public:
  using value_type = datagram;

  receive_datagram_op(receive_queue& queue, const datagram_address& receiver,
                      const std::array<local_mr_slice, N>& buffer) noexcept
      : awaited_receive{queue}, receiver_{receiver}, buffer_{buffer} {}
  receive_datagram_op(receive_datagram_op&& other) noexcept
      : awaited_receive{other.queue()}, receiver_{other.receiver_}, buffer_{other.buffer_} {}

  bool start(waiter& w, const environment& env) noexcept {
    return awaited_receive::start(w, env, Posts, buffer_);
  }
  using awaited_receive::failed;
  using awaited_receive::own_scheduler;
  datagram take() {
    const datagram_header header = failed() ? datagram_header{} : next_header(queue());
    return made_datagram(awaited_receive::take(), header, receiver_);
  }
  result<datagram> take_result() noexcept {
    const datagram_header header = failed() ? datagram_header{} : next_header(queue());
    result<message> taken = awaited_receive::take_result();
    if (taken.is_cancelled()) return cancelled_result;
    if (taken.has_failure()) return taken.failure();
    return made_datagram(*taken, header, receiver_);
  }

 private:
  const datagram_address& receiver_;
  std::array<local_mr_slice, N> buffer_;
};

}  // namespace cordma::detail
