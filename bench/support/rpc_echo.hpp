#pragma once

#include <support/device.hpp>
#include <support/until.hpp>

#include <cordma/coro/scope.hpp>
#include <cordma/rpc/client.hpp>
#include <cordma/rpc/server.hpp>
#include <cordma/runtime/runtime.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace bench {

using view = std::span<const std::byte>;
struct echo : cordma::rpc::method<"bench.echo", view, view> {};
constexpr std::size_t echo_bytes = 32;
inline cordma::task<view> echo_back(view request) { co_return request; }

inline cordma::runtime_options busy() {
  return {.device = cordma::test::device_name(), .mode = cordma::completion_mode::busy};
}

constexpr cordma::stream_options streams{.depth = 128};
constexpr cordma::rpc::client_options of_client{.stream = streams};

/// A server of one connection, with a runtime of its own.
struct serving {
  serving() { answering.handle<echo>(&echo_back); }
  ~serving() {
    work.request_stop();
    rt.run(work.join());
  }
  /// Serves who calls from there.
  void begin(const cordma::endpoint& caller) {
    work.spawn(answering.serve(rt.run(rt.connect(caller))));
  }
  /// Returns when it has sent that many replies more. Some may have been sent ahead: who calls
  /// does not wait until the last time has returned.
  void reply(std::uint64_t n) {
    due += n;
    rt.run(cordma::test::until(rt.executor(), [&] { return answering.counters().replied >= due; }));
  }

  cordma::runtime rt{busy()};
  cordma::rpc::server answering{{.stream = streams}};
  cordma::scope work{rt.executor()};
  std::uint64_t due = 0;
};

}  // namespace bench
