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
  auto& large = *new sending{*this, channel, std::move(whole)};
  large_ = &large;
  large.is_starting = true;
  const bool has_ended = large.work.start(large, {&channel.executor(), {}});
  large.is_starting = false;
  if (has_ended || large.message == nullptr) sending::on_ended(large);
}

void encoded_message::on_posted(outgoing_frame& self, const failure* why) noexcept {
  auto& m = static_cast<encoded_message&>(self);
  m.is_known_ = why == nullptr;
  m.encoded_.reset();  // The request holds the memory itself.
  m.on_sent_(m, why);
}

void encoded_message::sending::leave() noexcept {
  message = nullptr;
  if (is_starting) return;
  if (channel->failed() && channel->executor().is_running()) {
    list_hook<waiter>::unlink();
    channel->executor().schedule_last(*this);
  } else {
    delete this;
  }
}

std::coroutine_handle<> encoded_message::sending::on_ended(waiter& self) noexcept {
  auto* const large = &static_cast<sending&>(self);
  encoded_message* const m = large->message;
  std::optional<failure> why;
  if (m != nullptr) {
    m->large_ = nullptr;
    try {
      large->work.take();
    } catch (const error& e) {
      why = e.failure();
    } catch (const std::bad_alloc&) {
      why.emplace(errno_failure(ENOMEM, "rpc"));
    }
  }
  delete large;
  if (m != nullptr) m->on_sent_(*m, why ? &*why : nullptr);
  return std::noop_coroutine();
}

}  // namespace cordma::rpc::detail
