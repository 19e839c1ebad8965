#include "scenarios.hpp"
#include "support.hpp"

#include <cordma/rpc/client.hpp>
#include <cordma/rpc/server.hpp>

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

using bytes = std::span<const std::byte>;
struct stops_echo : rpc::method<"stops.echo", bytes, bytes> {};

constexpr duration stop_time_max = 20s;

/// Hosts that do all that there is, until everything is stopped at once.
struct stopping : cast {
  using cast::cast;

  task<> call(runtime& rt) {
    rpc::client client{co_await connect_patiently(rt, at(0))};
    for (;;) {
      const part said = any_part(w, 16 * kib);
      const auto heard = co_await client.call<stops_echo>(said.bytes());
      require(said.is_in(*heard), "a reply: other bytes");
    }
  }
  task<> lend(connection conn) {
    for (;;) {
      loan lent = co_await conn.send_local_mr(conn.memory().allocate_zeroed(kib), {.lease = 1s});
      static_cast<void>(co_await lent.ended());
    }
  }
  task<> borrow(runtime& rt) {
    connection conn = co_await connect_patiently(rt, hosts[0]->endpoint(sim_port + 1));
    const const_local_mr registered = registered_pattern(conn.memory());
    for (;;) {
      remote_mr borrowed = co_await conn.receive_remote_mr();
      const part written{std::size_t(w.random(1000)), borrowed.size_bytes()};
      co_await conn.write(written.of(registered), borrowed);
      if (w.random(1) == 0) co_await conn.send_remote_mr(std::move(borrowed));
    }
  }
  task<> echo_stream(connection conn) {
    message_stream stream{std::move(conn)};
    for (;;) {
      const stream_message m = co_await stream.receive();
      co_await stream.send(m.bytes(), m.immediate());
    }
  }
  task<> stream(runtime& rt) {
    message_stream stream{co_await connect_patiently(rt, hosts[0]->endpoint(sim_port + 2))};
    for (;;) {
      const part sent = any_part(w, 64 * kib);
      co_await stream.send(sent.bytes(), std::uint32_t(sent.offset));
      const stream_message m = co_await stream.receive();
      require(sent.is_in(m.bytes()), "a message: other bytes");
    }
  }

  /// A peer that has been stopped is no failure.
  template <class F>
  task<> until_lost(F f) {
    const auto ended = co_await as_result(f());
    if (ended.is_cancelled()) throw cancelled{};
  }

  task<> serve(runtime& rt) {
    rpc::server server;
    server.handle<stops_echo>([](bytes said) -> task<bytes> { co_return said; });
    listener for_calls = rt.listen(at(0));
    listener for_loans = rt.listen(hosts[0]->endpoint(sim_port + 1));
    listener for_streams = rt.listen(hosts[0]->endpoint(sim_port + 2));
    co_await when_all(
        server.serve(for_calls),
        cordma::serve(for_loans, [this](connection conn) { return lend(std::move(conn)); }),
        cordma::serve(for_streams,
                      [this](connection conn) { return echo_stream(std::move(conn)); }));
  }

  task<> live(runtime& rt, unsigned self) {
    time_point asked{};
    co_await with_scope([&](scope& all) -> task<> {
      if (self == 0) {
        all.spawn([&] { return serve(rt); });
      } else {
        all.spawn([&] { return until_lost([&] { return call(rt); }); });
        all.spawn([&] { return until_lost([&] { return borrow(rt); }); });
        all.spawn([&] { return until_lost([&] { return stream(rt); }); });
      }
      co_await sleep_for(moment(5ms));
      asked = w.now();
      all.request_stop();
    });
    require(w.now() - asked < stop_time_max, "a stop took too long");
  }
};

}  // namespace

void play_stops(sim::world& w) {
  start_all<stopping>(w, 2 + unsigned(w.random(1)));
  w.run(1min);
}

}  // namespace cordma::test
