#include "encoded_message.hpp"

#include <algorithm>
#include <utility>

namespace cordma::rpc::detail {

namespace {

void encode(const encodable_ref& value, std::span<std::byte> out) {
  if (value.lies_at == nullptr) return value.encode(value.value, out);
  std::copy_n(value.lies_at, value.size_bytes, out.begin());
}

}  // namespace

void encoded_message::send_made(message_channel& channel, const encodable_ref& value) {
  const std::size_t size = head_bytes + value.size_bytes;
  if (size <= channel.peer().buffer_bytes) {
    encoded_ = channel.memory().allocate_uninitialized(value.size_bytes);
    encode(value, encoded_.bytes());
    bytes = encoded_.bytes();
    return channel.send(*this);
  }
  channel.check_length(size);
  local_mr whole = channel.memory().allocate_uninitialized(size);
  std::copy_n(&head[message_protocol::header_bytes], head_bytes, whole.bytes().begin());
  encode(value, whole.bytes().subspan(head_bytes));
  large_ = channel.make_large(std::move(whole),
                              {&on_large_ended, this, {}, /*is_fenced=*/is_fenced, /*lent=*/lent});
  channel.send(*large_);
}

void encoded_message::on_posted(outgoing_frame& self, const std::optional<failure>& why) noexcept {
  auto& m = static_cast<encoded_message&>(self);
  m.is_known_ = !why;
  m.encoded_.reset();  // The request holds the memory itself.
  m.on_sent_(m, why);
}

void encoded_message::on_large_ended(cordma::detail::large_send& s) noexcept {
  auto& m = *static_cast<encoded_message*>(s.owner);
  const std::optional<failure> why = s.why;
  m.take_back();  // Deletes `s`.
  m.on_sent_(m, why);
}

}  // namespace cordma::rpc::detail
