#include <cordma/detail/messages/receive_message_op.hpp>

#include "stream_channel.hpp"

namespace cordma::detail {

receive_message_op::receive_message_op(stream_channel& channel) noexcept
    : channel_{channel}, acquire_{channel.messages().acquire()} {}

bool receive_message_op::start(waiter& w, const environment& env) noexcept {
  scheduler* const ends_on = env.scheduler != nullptr ? env.scheduler : &channel_->executor();
  return acquire_.start(w, {ends_on, env.stop});
}

scheduler* receive_message_op::own_scheduler() const noexcept { return &channel_->executor(); }

result<stream_message> receive_message_op::take_result() noexcept {
  const result<void> outcome = acquire_.take_result();
  if (outcome.is_cancelled()) return cancelled_result;
  if (outcome.has_failure()) return outcome.failure();
  return channel_->deliver();
}

}  // namespace cordma::detail
