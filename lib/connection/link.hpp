#pragma once

#include "io/stream_channel.hpp"

#include <cordma/io/socket_address.hpp>
#include <cordma/security/credentials.hpp>

#include <memory>
#include <string>
#include <utility>

namespace cordma {
class tls_channel;
enum class tls_role : unsigned char;
}  // namespace cordma

namespace cordma::detail {

/// Tells who made a socket. The kernel names who connected, or listens, at the other end. Of a
/// socketpair the kernel names its maker, whoever has the other end.
enum class socket_origin : unsigned char {
  own,        ///< This library connected or accepted it: the kernel's word names the peer.
  handed_in,  ///< The program did: nothing is known of the peer.
};

/// The way to a peer, as a handshake finds it.
class link {
 public:
  /// `host`: the name that a server's certificate must have; empty on the accepting side.
  /// \errors std::bad_alloc; those of getsockname(2) and getpeername(2): the peer has gone.
  explicit link(stream_socket socket, std::string host = {},
                socket_origin origin = socket_origin::handed_in);
  link(socket_address own, socket_address other, std::unique_ptr<byte_channel> over,
       std::string host = {})
      : local{own}, peer{other}, channel_{std::move(over)}, host_{std::move(host)} {}

  const socket_address local;
  const socket_address peer;
  identity peer_identity;

  [[nodiscard]] byte_channel& channel() const noexcept { return *channel_; }
  /// Lets TLS run over the channel, if `used` is not null. The peer must do the same. A client that
  /// does not take the server refuses it in the clear.
  /// \errors errc::not_authenticated, errc::incompatible_peer, …; what a refusal of the peer says.
  task<> secure(const credentials* used, tls_role role);
  [[nodiscard]] const tls_channel* tls() const noexcept { return tls_; }
  /// Runs a step of the handshake. If it fails because the peer has refused in the clear, throws
  /// what the peer said.
  template <class T>
  task<T> heard(task<T> step);
  /// Reads the refusal of a peer that has spoken in the clear, if it has. \errors that refusal.
  task<> throw_refusal();
  /// Returns where a refusal is heard: the channel, or what is below a handshake of TLS that
  /// failed.
  [[nodiscard]] byte_channel& refusal_channel() const noexcept;
  /// Returns the failure that the peer is told when the handshake ends with `why`.
  [[nodiscard]] failure for_peer(const failure& why) const noexcept;
  /// Lets the connection take the channel, when both have accepted. Until it does, a refusal goes
  /// there.
  [[nodiscard]] std::unique_ptr<byte_channel>&& take_channel() noexcept {
    return std::move(channel_);
  }

 private:
  std::unique_ptr<byte_channel> channel_;
  std::string host_;
  tls_channel* tls_ = nullptr;  // Owned by `channel_`.
  bool is_authenticating_ = false;
};

template <class T>
task<T> link::heard(task<T> step) {
  result<T> outcome = co_await as_result(std::move(step));
  if (outcome.has_failure()) co_await throw_refusal();
  co_return std::move(outcome).value();
}

}  // namespace cordma::detail
