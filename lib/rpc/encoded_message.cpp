#include "encoded_message.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

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
  large_.work.emplace(
      message_channel::send_large(channel_ref{channel}, std::move(whole), {}, is_fenced, lent));
  if (large_.work->start(large_, {&channel.home(), {}})) sending::on_ended(large_);
}

void encoded_message::on_posted(outgoing& self, const failure* why) noexcept {
  auto& m = static_cast<encoded_message&>(self);
  m.encoded_.reset();  // The request holds its own.
  m.on_sent_(m, why);
}

std::coroutine_handle<> encoded_message::sending::on_ended(waiter& self) noexcept {
  auto& large = static_cast<sending&>(self);
  std::optional<failure> why;
  try {
    large.work->take();
  } catch (const error& e) {
    why = e.failure();
  } catch (const std::bad_alloc&) {
    why.emplace(errno_failure(ENOMEM, "rpc"));
  }
  encoded_message& m = large.message;
  large.work.reset();
  m.on_sent_(m, why ? &*why : nullptr);
  return std::noop_coroutine();
}

}  // namespace cordma::rpc::detail
