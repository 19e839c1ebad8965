#include <cordma/messages/stream_message.hpp>

#include "message_channel.hpp"

namespace cordma {

using detail::arrived_message;
using detail::large_message;

const_local_mr_slice stream_message::slice() const noexcept {
  if (content_ == nullptr) return {};
  if (content_->is_large) return static_cast<const large_message&>(*content_).memory.slice();
  return content_.get_deleter().channel->slice_of(static_cast<const arrived_message&>(*content_));
}

void stream_message::give_back::operator()(detail::message_content* content) noexcept {
  const detail::channel_ref gone = std::move(channel);
  if (!content->is_large) return gone->give_back(static_cast<arrived_message&>(*content));
  delete static_cast<large_message*>(content);
  if (gone) gone->drop_large();
}

}  // namespace cordma
