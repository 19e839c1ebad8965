#include <cordma/messages/message_stream.hpp>

#include "base/check_option.hpp"
#include "stream_channel.hpp"

#include <utility>

namespace cordma {

using detail::arrived_message;
using detail::large_message;

void check(const stream_options& o) {
  constexpr const char* name = "stream_options";
  constexpr auto number = [](std::size_t bytes) { return static_cast<long long>(bytes); };
  namespace limits = message_protocol;
  check_option(name, "buffer_bytes", number(o.buffer_bytes), number(limits::buffer_bytes_min),
               number(limits::buffer_bytes_max));
  check_option(name, "message_bytes_max", number(o.message_bytes_max), number(o.buffer_bytes),
               number(limits::message_bytes_max));
  check_option(name, "large_ahead", o.large_ahead, 0, 64);
  check_timeout(name, "open_timeout", o.open_timeout);
}

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

message_stream::message_stream(cordma::connection conn, const stream_options& options)
    : channel_{detail::message_channel::make<detail::stream_channel>(conn, options)},
      conn_{std::move(conn)} {}

detail::stream_channel& message_stream::channel() const noexcept {
  CORDMA_ASSERT(bool(channel_), "used an empty stream");
  return *channel_.get();
}

task<> message_stream::send(std::span<const std::byte> bytes,
                            std::optional<std::uint32_t> immediate) {
  return channel().send_bytes(detail::channel_ref{channel()}, bytes, immediate);
}
task<> message_stream::send(const_local_mr_slice bytes, std::optional<std::uint32_t> immediate) {
  return channel().send_memory(detail::channel_ref{channel()}, bytes, immediate);
}
detail::receive_message_op message_stream::receive() noexcept {
  return detail::receive_message_op{channel()};
}
task<> message_stream::close() { return connection().close(); }
const stream_counters& message_stream::counters() const noexcept { return channel().counters(); }
connection& message_stream::connection() noexcept {
  CORDMA_ASSERT(bool(channel_), "used an empty stream");
  return conn_;
}

namespace detail {

receive_message_op::receive_message_op(stream_channel& channel) noexcept
    : channel_{channel}, acquire_{channel.messages().acquire()} {}

bool receive_message_op::start(waiter& w, const environment& env) noexcept {
  scheduler* const ends_on = env.scheduler != nullptr ? env.scheduler : &channel_->executor();
  if (acquire_.start(w, {ends_on, env.stop})) return true;
  channel_->serve_large();
  return false;
}

scheduler* receive_message_op::own_scheduler() const noexcept { return &channel_->executor(); }

result<stream_message> receive_message_op::take_result() noexcept {
  const result<void> outcome = acquire_.take_result();
  if (outcome.is_cancelled()) return cancelled_result;
  if (outcome.has_failure()) return outcome.failure();
  result<stream_message> message = channel_->deliver();
  channel_->serve_large();
  return message;
}

}  // namespace detail
}  // namespace cordma
