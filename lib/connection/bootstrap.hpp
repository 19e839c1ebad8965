#pragma once

#include <cordma/base/time.hpp>
#include <cordma/detail/connection/handshake.hpp>
#include <cordma/detail/io/stream_socket.hpp>

#include <chrono>

namespace cordma {

/// The handshake over a TCP stream, without a device. The connecting side sends a hello, reads a
/// hello, prepares its queue pair, sends a verdict, and reads one. The accepting side mirrors these
/// steps. A refusal may come in place of any expected frame: reading it throws the refusal's
/// failure.
///
/// Every wait can be stopped; the caller sets deadlines (`with_timeout`). \thread the executor's.
namespace bootstrap {

task<> send(stream_socket& stream, handshake::frame_bytes_t frame);
/// \errors errc::bad_handshake, errc::incompatible_peer, errc::disconnected; what a refusal says.
task<handshake::hello> read_hello(stream_socket& stream);
/// Returns when the peer accepted. \errors as `read_hello`.
task<> read_acceptance(stream_socket& stream);
/// Tells the peer why it is refused. Waits a bounded time for the peer to close, because closing a
/// socket with unread bytes would discard what was just sent. \errors only `cancelled`.
task<> refuse(stream_socket& stream, failure why);
/// Returns `f`; a failure of `with_timeout` gets `call` and `limit` added.
failure name_timeout(const failure& f, const char* call, time_span limit) noexcept;

}  // namespace bootstrap
}  // namespace cordma
