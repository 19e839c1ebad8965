#pragma once

#include "io/byte_channel.hpp"

#include <cordma/base/time.hpp>
#include "connection/handshake.hpp"

namespace cordma {

/// The frames of the handshake on a byte channel, without a device. The connecting side sends a
/// start and a hello, reads a hello, prepares its queue pair, sends a verdict, and reads one. The
/// accepting side mirrors these steps. A refusal may come in place of any expected frame: reading
/// it throws the refusal's failure.
///
/// Every wait can be stopped; the caller sets deadlines (`with_timeout`). \thread the executor's.
namespace bootstrap {

/// \errors errc::bad_handshake, errc::incompatible_peer, errc::disconnected; what a refusal says.
task<handshake::start> read_start(byte_channel& channel);
/// \errors as `read_start`.
task<handshake::received_hello> read_hello(byte_channel& channel);
/// Reads the peer's next frame, a refusal. \errors the failure that the refusal names; as
/// `read_start`.
task<> read_refusal(byte_channel& channel);
/// Returns when the peer accepted the hello with that nonce. \errors as `read_start`;
///   errc::bad_handshake: it accepted another one, as who repeats what was recorded does.
task<> read_acceptance(byte_channel& channel, handshake::nonce ours);
/// Tells the peer why it is refused. Waits a bounded time for the peer to close, because closing a
/// socket with unread bytes would discard what was just sent. \errors only `cancelled`.
task<> refuse(byte_channel& channel, failure why);
/// Returns `f`; a failure of `with_timeout` gets `call` and `limit` added.
failure name_timeout(const failure& f, const char* call, time_span limit) noexcept;

}  // namespace bootstrap
}  // namespace cordma
