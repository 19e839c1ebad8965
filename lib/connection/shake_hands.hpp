#pragma once

#include "link.hpp"

#include <cordma/connection/connection.hpp>
#include <cordma/connection/connection_options.hpp>
#include <cordma/connection/connection_request.hpp>
#include <cordma/detail/connection/connection_resources.hpp>

namespace cordma::detail {

/// The two sides of a handshake: docs/handshake.md. `way` outlives the task, and keeps its channel
/// if that fails: the accepting side then tells its peer why. The caller sets the deadline.
/// \errors errc::bad_handshake, errc::incompatible_peer, errc::refused, errc::disconnected; what
/// the
///   verbs throw; errc::limit_exceeded: an option.
task<connection> shake_hands_as_client(connection_resources resources, connection_options options,
                                       link& way);
/// `admit` decides on the peer's hello. \errors as above.
task<connection> shake_hands_as_server(connection_resources resources, connection_options options,
                                       link& way, const admission& admit);

}  // namespace cordma::detail
