#include <cordma/messages/message_stream.hpp>

#include "stream_channel.hpp"

#include <utility>

namespace cordma {

void check(const stream_options& o) {
  constexpr const char* name = "stream_options";
  constexpr auto most = [](std::size_t bytes) { return static_cast<long long>(bytes); };
  namespace limits = message_protocol;
  check_option(name, "buffer_bytes", most(o.buffer_bytes), most(limits::buffer_bytes_min),
               most(limits::buffer_bytes_max));
  check_option(name, "message_bytes_max", most(o.message_bytes_max), most(o.buffer_bytes),
               most(limits::message_bytes_max));
  check_option(name, "large_ahead", o.large_ahead, 1, 64);
  check_option(name, "open_timeout", o.open_timeout.count(), 1, 24 * 3600 * 1000);
}

message_stream::message_stream(cordma::connection conn, const stream_options& options)
    : conn_{std::move(conn)},
      channel_{detail::message_channel::make<detail::stream_channel>(conn_, options)} {}

detail::stream_channel& message_stream::channel() const noexcept {
  CORDMA_ASSERT(channel_.get() != nullptr, "used an empty stream");
  return static_cast<detail::stream_channel&>(*channel_.get());
}

task<> message_stream::send(std::span<const std::byte> bytes,
                            std::optional<std::uint32_t> immediate) {
  return channel().send_bytes(detail::channel_ref{channel()}, bytes, immediate);
}
task<> message_stream::send(const_local_mr_slice bytes, std::optional<std::uint32_t> immediate) {
  return channel().send_memory(detail::channel_ref{channel()}, bytes, immediate);
}
message_stream::receive_op message_stream::receive() noexcept { return receive_op{channel()}; }
const stream_counters& message_stream::counters() const noexcept { return channel().counters(); }

message_stream::receive_op::receive_op(detail::stream_channel& channel) noexcept
    : channel_{channel}, acquire_{channel.messages().acquire()} {}

bool message_stream::receive_op::start(waiter& w, const environment& env) noexcept {
  return acquire_.start(
      w, {env.scheduler != nullptr ? env.scheduler : &channel_->executor(), env.stop});
}

scheduler* message_stream::receive_op::own_scheduler() const noexcept {
  return &channel_->executor();
}

result<stream_message> message_stream::receive_op::take_result() noexcept {
  const result<void> outcome = acquire_.take_result();
  if (outcome.is_cancelled()) return cancelled_result;
  if (outcome.has_failure()) return outcome.failure();
  return channel_->deliver();
}

const_local_mr_slice stream_message::slice() const noexcept {
  if (content_ == nullptr) return {};
  if (content_->is_large) return static_cast<detail::large_message&>(*content_).memory.slice();
  return channel_->slice_of(static_cast<detail::arrived_message&>(*content_));
}

void stream_message::give_back() noexcept {
  const detail::channel_ref channel = std::move(channel_);
  detail::message_content* const content = std::exchange(content_, nullptr);
  if (!content->is_large)
    return channel->give_back(static_cast<detail::arrived_message&>(*content));
  delete static_cast<detail::large_message*>(content);
  if (channel) channel->drop_large();
}

}  // namespace cordma
