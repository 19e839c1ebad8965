#pragma once

#include "request/queue_pair.hpp"

#include <support/connected_pair.hpp>
#include <support/until.hpp>

#include <cordma/coro/scope.hpp>
#include <cordma/rpc/client.hpp>
#include <cordma/rpc/server.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cordma::test {

using view = std::span<const std::byte>;

/// Gives the request's bytes back.
struct echo : rpc::method<"test.echo", view, view> {};
/// Waits until the test opens the gate of that number, and gives the number.
struct wait_for : rpc::method<"test.wait_for", std::uint32_t, std::uint32_t> {};
struct wait_again : rpc::method<"test.wait_again", std::uint32_t, std::uint32_t> {
  static constexpr bool is_idempotent = true;
};

/// A server on the device under test, whose handlers the test holds back.
struct rpc_server {
  explicit rpc_server(const rpc::server_options& options = {}, runtime_options of_runtime = {})
      : rt{on_test_device(std::move(of_runtime))},
        acceptor{rt.listen({}, {}, never_not_ready())},
        server{options},
        work{rt.executor()} {
    server.handle<echo>([](view request) -> task<view> { co_return request; });
    server.handle<wait_for>([this](std::uint32_t n) { return wait(n); });
    server.handle<wait_again>([this](std::uint32_t n) { return wait(n); });
  }
  ~rpc_server() {
    work.request_stop();
    static_cast<void>(rt.run(as_result(work.join())));
  }

  task<std::uint32_t> wait(std::uint32_t n) {
    ++begun;
    most = std::max(most, ++running);
    struct leaving {
      ~leaving() { --count; }
      unsigned& count;
    } const here{running};
    if (stubborn) co_await deaf_wait{*this, n};
    try {
      co_await gate(n).wait();
    } catch (const cancelled&) {
      ++stopped;
      throw;
    }
    co_return n;
  }
  /// A wait that hears of no stop.
  struct deaf_wait {
    [[nodiscard]] bool await_ready() const { return server.gate(number).is_set(); }
    void await_suspend(std::coroutine_handle<> handler) const { server.deaf.push_back(handler); }
    void await_resume() const noexcept {}
    rpc_server& server;
    std::uint32_t number;
  };
  /// Opens a gate for handlers that are `stubborn`.
  void open(std::uint32_t n) {
    gate(n).set();
    for (const auto handler : std::exchange(deaf, {})) handler.resume();
  }
  event& gate(std::uint32_t n) { return gates.try_emplace(n, rt.executor()).first->second; }

  /// A connection that the server has begun to serve.
  task<connection> join() {
    auto [there, here] = co_await when_all(rt.connect(acceptor.local_endpoint(), never_not_ready()),
                                           acceptor.accept());
    work.spawn(serve(std::move(here)));
    co_return std::move(there);
  }
  /// A connection that is lost ends no other.
  task<> serve(connection conn) {
    try {
      co_await server.serve(std::move(conn));
    } catch (const error&) {
      ++lost;
    }
  }
  rpc::client make_client(const rpc::client_options& options = {}) {
    return rpc::client{rt.run(join()), options};
  }

  runtime rt;
  listener acceptor;
  std::map<std::uint32_t, event> gates;
  unsigned begun = 0, running = 0, most = 0, stopped = 0, lost = 0;
  bool stubborn = false;  ///< handlers hear no stop
  std::vector<std::coroutine_handle<>> deaf;
  rpc::server server;
  scope work;
};

/// A client that connects by itself, and whose connections the test can lose.
struct reconnecting {
  explicit reconnecting(rpc_server& s, const rpc::client_options& options = {})
      : answering{s}, calling{s.rt.executor(), [this] { return next(); }, options} {}
  task<connection> next() {
    ++attempts;
    if (is_unreachable) throw error{errno_failure(ECONNREFUSED, "connect")};
    connection conn = co_await answering.join();
    co_return conn;
  }
  static void lose(connection& conn) {
    conn.qp().abort({.code = errc::disconnected, .call = "test"});
  }
  void lose() { lose(*calling.connection()); }
  rpc_server& answering;
  unsigned attempts = 0;
  bool is_unreachable = false;
  rpc::client calling;
};

/// Different at every offset.
inline std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = std::byte((i * 7 + (i >> 8)) & 0xff);
  return all;
}

/// Gives the failure that a call ended with.
template <class M>
task<failure> why_it_fails(rpc::client& c, typename M::request request,
                           rpc::call_options options = {}) {
  const auto outcome = co_await as_result(c.call<M>(std::move(request), options));
  if (outcome.has_failure()) co_return outcome.failure();
  co_return failure{};
}

inline task<> check_echo(rpc::client& c, view bytes) {
  const auto back = co_await c.call<echo>(bytes);
  CHECK(std::ranges::equal(*back, bytes));
}

}  // namespace cordma::test
