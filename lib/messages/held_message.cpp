#include <cordma/detail/messages/held_message.hpp>

#include "message_channel.hpp"

namespace cordma::detail {

const_local_mr_slice held_message::slice() const noexcept {
  if (content_ == nullptr) return {};
  if (content_->is_large) return static_cast<large_message&>(*content_).memory.slice();
  return channel_->slice_of(static_cast<arrived_message&>(*content_));
}

void held_message::give_back() noexcept {
  const channel_ref channel = std::move(channel_);
  message_content* const content = std::exchange(content_, nullptr);
  if (!content->is_large) return channel->give_back(static_cast<arrived_message&>(*content));
  delete static_cast<large_message*>(content);
  if (channel) channel->drop_large();
}

}  // namespace cordma::detail
