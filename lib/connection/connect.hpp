#pragma once

#include "connection_resources.hpp"
#include "io/stream_socket.hpp"

#include <cordma/base/time.hpp>
#include <cordma/connection/connection.hpp>
#include <cordma/connection/connection_options.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/connection/listener.hpp>
#include <cordma/coro/task.hpp>

#include <chrono>

namespace cordma::detail {

/// Connects to a listener: `runtime::connect`.
task<connection> connect(connection_resources resources, endpoint server,
                         connection_options options = {});

/// Connects over a stream socket that is connected already, to a peer that calls `accept`.
/// \errors as above. \thread the executor's, which is the stream's too.
task<connection> connect(connection_resources resources, stream_socket stream,
                         connection_options options = {});

/// Does the server's side of `connect` on a connected stream socket: `runtime::accept`.
/// \thread the executor's, which is the stream's too.
task<connection> accept(connection_resources resources, stream_socket stream,
                        connection_options options = {}, admission admit = {},
                        time_span handshake_timeout = std::chrono::seconds{5});

}  // namespace cordma::detail
