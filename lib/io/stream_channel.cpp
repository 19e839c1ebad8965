#include "stream_channel.hpp"

#include "base/failures.hpp"

#include <cerrno>
#include <cstddef>
#include <utility>

namespace cordma {

stream_channel::socket_watch::socket_watch(stream_channel& owner)
    : fd_watch{owner.executor(), owner.socket_.fd(),
               fd_events::readable | fd_events::writable | fd_events::hang_up,
               [](fd_watch& self) noexcept {
                 static_cast<socket_watch&>(self).channel.tell_change();
               }},
      channel{owner} {}

stream_channel::stream_channel(stream_socket socket)
    : byte_channel{socket.executor()}, socket_{std::move(socket)}, watch_{*this} {}

std::optional<std::size_t> stream_channel::try_read(std::span<std::byte> into) {
  for (;;) {
    const std::ptrdiff_t n = socket_.calls().receive(socket_.fd(), into);
    if (n >= 0) return std::size_t(n);
    if (n == -EINTR) continue;
    const failure::object_id name{"fd", std::uint64_t(socket_.fd())};
    if (n != -EAGAIN) detail::throw_errno(int(-n), "recv", {}, name);
    if (watch_.is_watching()) return std::nullopt;
    detail::throw_failure(errc::disconnected, "recv", "the reactor watches the socket no more",
                          name);
  }
}

std::size_t stream_channel::try_write(std::span<const std::byte> from) {
  for (;;) {
    const std::ptrdiff_t n = socket_.calls().send(socket_.fd(), from);
    if (n >= 0) return std::size_t(n);
    if (n == -EAGAIN) return 0;
    if (n != -EINTR) detail::throw_errno(int(-n), "send", {}, {"fd", std::uint64_t(socket_.fd())});
  }
}

}  // namespace cordma
