#pragma once

#include "support/access.hpp"
#include "support/device.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/runtime/runtime.hpp>

#include <utility>

namespace cordma::test {

inline runtime_options on_test_device(runtime_options options = {}) {
  options.device = device_name();
  return options;
}
/// Time passes when the test says so.
inline runtime_options by_hand(const manual_clock& clock) {
  runtime_options options;
  options.executor.clock = &clock;
  return options;
}

/// A peer that is found not ready breaks the connection at once.
inline connection_options never_not_ready() {
  connection_options o;
  o.rnr_retry = 0;
  return o;
}

/// Two ends of one connection, made by a listener and a connect on one runtime.
struct connected_pair {
  explicit connected_pair(runtime_options options = {})
      : connected_pair{std::move(options), connection_options{}, connection_options{}} {}
  connected_pair(runtime_options options, const connection_options& of_client,
                 const connection_options& of_server)
      : rt{on_test_device(std::move(options))}, acceptor{rt.listen({}, {}, of_server)} {
    rt.run(open(of_client));
  }

  task<> open(connection_options of_client) {
    auto [c, s] =
        co_await when_all(rt.connect(acceptor.local_endpoint(), of_client), acceptor.accept());
    client = std::move(c);
    server = std::move(s);
  }

  runtime rt;
  listener acceptor;
  connection client;
  connection server;
};

}  // namespace cordma::test
