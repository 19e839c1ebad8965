#include <cordma/messages/message_stream.hpp>

#include "base/check_option.hpp"
#include "stream_channel.hpp"

#include <utility>

namespace cordma {

void check(const stream_options& o) {
  constexpr const char* name = "stream_options";
  constexpr auto number = [](std::size_t bytes) { return static_cast<long long>(bytes); };
  namespace limits = message_protocol;
  check_option(name, "buffer_bytes", number(o.buffer_bytes), number(limits::buffer_bytes_min),
               number(limits::buffer_bytes_max));
  check_option(name, "message_bytes_max", number(o.message_bytes_max), number(o.buffer_bytes),
               number(limits::message_bytes_max));
  check_option(name, "large_ahead", o.large_ahead, 1, 64);
  check_timeout(name, "open_timeout", o.open_timeout);
}

message_stream::message_stream(cordma::connection conn, const stream_options& options)
    : channel_{detail::message_channel::make<detail::stream_channel>(conn, options)} {
  channel().own(std::move(conn));
}

message_stream& message_stream::operator=(message_stream&& other) noexcept {
  if (this == &other) return *this;
  if (channel_) channel().leave();
  channel_ = std::move(other.channel_);
  return *this;
}

message_stream::~message_stream() {
  if (channel_) channel().leave();
}

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
detail::receive_message_op message_stream::receive() noexcept {
  return detail::receive_message_op{channel()};
}
task<> message_stream::close() { return channel().conn().close(); }
const stream_counters& message_stream::counters() const noexcept { return channel().counters(); }
connection& message_stream::connection() noexcept { return channel().conn(); }

}  // namespace cordma
