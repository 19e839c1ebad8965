#include "link.hpp"

#include "bootstrap.hpp"
#include "security/tls_channel.hpp"

#include <sys/socket.h>

namespace cordma::detail {
namespace {

/// Returns what the kernel says of a Unix socket's peer; nothing for other sockets.
identity unix_identity(const stream_socket& socket) {
  ucred peer{};
  socklen_t size_bytes = sizeof peer;
  if (!socket.local_address().is_unix() ||
      ::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size_bytes) != 0) {
    return {};
  }
  identity user{authentication::unix_credentials, "uid " + std::to_string(peer.uid)};
  user.pid = std::uint32_t(peer.pid);
  user.uid = peer.uid;
  user.gid = peer.gid;
  return user;
}

}  // namespace

link::link(stream_socket socket, std::string host, socket_origin origin)
    : local{socket.local_address()},
      peer{socket.peer_address()},
      peer_identity{origin == socket_origin::own ? unix_identity(socket) : identity{}},
      channel_{std::make_unique<stream_channel>(std::move(socket))},
      host_{std::move(host)} {}

task<> link::secure(const credentials* used, tls_role role) {
  if (used == nullptr) co_return;
  auto tls = std::make_unique<tls_channel>(*used, std::move(channel_));
  tls_ = tls.get();
  channel_ = std::move(tls);
  is_authenticating_ = true;
  const result<void> known = co_await as_result(heard(tls_->shake_hands(role, host_)));
  if (known.is_cancelled()) throw cancelled{};
  if (known.has_failure()) {
    // The caller of the other role refuses by itself, as it refuses all else.
    const bool refuses = role == tls_role::client && tls_->clear() == nullptr;
    if (refuses) co_await bootstrap::refuse(refusal_channel(), for_peer(known.failure()));
    throw error{known.failure()};
  }
  is_authenticating_ = false;
  peer_identity = tls_->peer();
}

task<> link::throw_refusal() {
  byte_channel* const clear = tls_ != nullptr ? tls_->clear() : nullptr;
  if (clear != nullptr) co_await bootstrap::read_refusal(*clear);
}

byte_channel& link::refusal_channel() const noexcept {
  return is_authenticating_ ? tls_->below() : *channel_;
}

failure link::for_peer(const failure& why) const noexcept {
  // Neither its own slowness nor a limit says anything of a key or certificate.
  const bool is_harmless = why.code == errc::timed_out || why.code == errc::refused;
  if (!is_authenticating_ || is_harmless) return why;
  return {.code = errc::not_authenticated, .call = why.call};
}

}  // namespace cordma::detail
