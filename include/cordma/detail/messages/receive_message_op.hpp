#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/coro/semaphore.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/messages/message_content.hpp>

namespace cordma {

class stream_message;

}  // namespace cordma

namespace cordma::detail {

class stream_channel;

/// Waits for the next message of a stream. When the wait is stopped or destroyed, the message goes
/// to the next who asks.
class CORDMA_EXPORT [[nodiscard]] receive_message_op final
    : public operation_base<receive_message_op> {
 public:
  using value_type = stream_message;
  explicit receive_message_op(stream_channel& channel) noexcept;

  bool start(waiter& w, const environment& env) noexcept;
  [[nodiscard]] scheduler* own_scheduler() const noexcept;
  [[nodiscard]] bool failed() const noexcept { return acquire_.failed(); }
  result<stream_message> take_result() noexcept;

 private:
  channel_ref channel_;
  semaphore::acquire_op acquire_;
};

}  // namespace cordma::detail
