#pragma once

#include "connection_state.hpp"
#include "link.hpp"

#include <cordma/connection/connection.hpp>
#include <cordma/connection/connection_options.hpp>
#include <cordma/connection/listener.hpp>
#include "connection/connection_resources.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

namespace cordma::detail {

/// The two sides of a handshake over a byte channel: docs/handshake.md. `peer_link` outlives the
/// task, and keeps its channel if that fails: the accepting side then tells its peer why. The
/// caller sets the deadline. \errors errc::bad_handshake, errc::incompatible_peer, errc::refused,
///   errc::not_authenticated, errc::disconnected; what the verbs throw; errc::limit_exceeded: an
///   option.
task<connection> shake_hands_as_client(connection_resources resources, connection_options options,
                                       link& peer_link);
/// `admit` decides on the peer's hello. \errors as above.
task<connection> shake_hands_as_server(connection_resources resources, connection_options options,
                                       link& peer_link, const admission& admit);

/// Returns this side's start. \errors as `random_bytes`.
handshake::start make_start(const connection_options& options);
/// \errors errc::incompatible_peer: names the modes of both sides.
void check_mode(const handshake::start& theirs, const connection_options& ours);

/// Comes before the program is asked. A listener that was closed has stopped its handshakes, and
/// the program may have let go what its admission refers to. A read that had its bytes before does
/// not hear of that. \errors `cancelled`: a stop was requested.
task<> end_if_stopped();

/// Asks the program about a peer that says only `data`. The options get its answer.
/// \errors errc::refused: the program's reason.
void admit_plain(const admission& admit, connection_options& options, const socket_address& peer,
                 std::span<const std::byte> data);

/// Goes on after the starts, where the control queue pair is connected already, or TLS runs.
/// `of_start`: the nonce of the listener's start, if it has sent one.
task<connection> agree_as_client(std::unique_ptr<connection_state>& state, link& peer_link,
                                 std::optional<handshake::nonce> of_start = {});
/// `theirs` is the peer's start. `state_for` gives the state once the program has admitted the
/// peer. Its owner keeps the state until the connection has it: `peer_link` may run over its agent.
task<connection> agree_as_server(const handshake::start& theirs, const connection_options& options,
                                 link& peer_link, const admission& admit,
                                 callback<std::unique_ptr<connection_state>&()> state_for);

}  // namespace cordma::detail
