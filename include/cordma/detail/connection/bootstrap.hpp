#pragma once

#include <cordma/detail/connection/handshake.hpp>
#include <cordma/detail/io/tcp.hpp>

#include <chrono>

namespace cordma {

/// The handshake over a TCP stream, without a device. Who connects: sends a hello, reads a hello,
/// makes ready, sends a verdict, reads one. Who accepts: the mirror image. Instead of anything that
/// is expected, a refusal may come: reading it throws what it says.
/// Every wait can be stopped; deadlines are the caller's (`with_timeout`). \thread the executor's.
namespace bootstrap {

task<> send_hello(tcp_stream& stream, handshake::hello local);
/// \errors errc::bad_handshake, errc::incompatible_peer, errc::disconnected; what a refusal says.
task<handshake::hello> read_hello(tcp_stream& stream);
task<> send_acceptance(tcp_stream& stream);
/// Returns when the peer accepted. \errors as `read_hello`.
task<> read_acceptance(tcp_stream& stream);
/// Tells the peer why it is refused. Waits a bounded time for the peer to close, because closing a
/// socket with unread bytes would discard what was just sent. \errors only `cancelled`.
task<> refuse(tcp_stream& stream, failure why);
/// The same failure, or for one of `with_timeout`: what took longer than how long.
failure name_deadline(const failure& f, const char* call, std::chrono::milliseconds limit) noexcept;

}  // namespace bootstrap
}  // namespace cordma
