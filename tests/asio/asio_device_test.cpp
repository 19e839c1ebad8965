// Connections, datagrams and shared receives in a program of asio.
#include <cordma/asio.hpp>

#include "support/connected_pair.hpp"
#include "support/until.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/datagram/datagram_socket.hpp>
#include <cordma/queue/shared_receives.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <asio/awaitable.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/experimental/awaitable_operators.hpp>
#include <asio/use_awaitable.hpp>
#include <catch2/catch.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

using namespace cordma;
using namespace std::chrono_literals;
using namespace asio::experimental::awaitable_operators;
using asio::use_awaitable;

namespace {

/// A context, and a runtime that waits in it.
struct asio_device {
  /// Runs a coroutine of asio to its end; throws what it threw.
  void run(asio::awaitable<void> body) {
    event over{rt.executor()};
    std::exception_ptr thrown;
    asio::co_spawn(context, std::move(body), [&](std::exception_ptr why) {
      thrown = why;
      over.set();
    });
    rt.run(over.wait());
    if (thrown) std::rethrow_exception(thrown);
  }

  asio::io_context context{1};
  runtime rt{[this] {
    runtime_options options;
    options.executor.reactor = std::make_unique<asio_reactor>(context);
    return test::on_test_device(std::move(options));
  }()};
};

/// A wait with a callback of asio, which a signal can cancel.
struct cancellable {
  /// The callback of an operation that gives a `T`.
  template <class T>
  auto callback() {
    return asio::bind_cancellation_slot(signal.slot(), [this](std::exception_ptr why, T) {
      why_not = why;
      has_ended = true;
    });
  }
  void cancel(runtime& rt) {
    signal.emit(asio::cancellation_type::terminal);
    rt.run(test::until(rt.executor(), [this] { return has_ended; }));
  }
  /// The error that the operation ended with; none if it has not ended, or gave its value.
  [[nodiscard]] std::error_code code() const {
    if (!why_not) return {};
    try {
      std::rethrow_exception(why_not);
    } catch (const std::system_error& e) {
      return e.code();
    }
  }

  asio::cancellation_signal signal;
  std::exception_ptr why_not;
  bool has_ended = false;
};

}  // namespace

TEST_CASE("coroutines and callbacks of asio connect and accept", "[asio][device]") {
  asio_device d;
  listener acceptor = d.rt.listen({});
  d.run([&]() -> asio::awaitable<void> {
    auto [client, server] =
        co_await (async_await(d.context, d.rt.connect(acceptor.local_endpoint()), use_awaitable) &&
                  async_await(d.context, acceptor.accept(), use_awaitable));
    CHECK(client.is_open());
    CHECK(client.peer_qpn() == server.verbs().num());
    std::optional<connection> came;
    async_await(d.context, acceptor.accept(),
                [&](std::exception_ptr, connection c) { came.emplace(std::move(c)); });
    const connection second =
        co_await async_await(d.context, d.rt.connect(acceptor.local_endpoint()), use_awaitable);
    co_await async_await(d.context, test::until(d.rt.executor(), [&] { return came.has_value(); }),
                         use_awaitable);
    CHECK(came->verbs().num() == second.peer_qpn());
    bool is_refused = false;
    const endpoint nobody = acceptor.local_endpoint();
    co_await async_await(d.context, acceptor.close(), use_awaitable);
    try {
      co_await async_await(d.context, d.rt.connect(nobody), use_awaitable);
    } catch (const error& e) {
      is_refused = e.code() == std::errc::connection_refused;
    }
    CHECK(is_refused);
  }());
}

TEST_CASE("an accept that asio cancels takes nobody from the next one", "[asio][device]") {
  asio_device d;
  listener acceptor = d.rt.listen({});
  cancellable wait;
  async_await(d.context, acceptor.accept(), wait.callback<connection>());
  wait.cancel(d.rt);
  CHECK(wait.code() == asio::error::operation_aborted);
  d.run([&]() -> asio::awaitable<void> {
    auto [client, server] =
        co_await (async_await(d.context, d.rt.connect(acceptor.local_endpoint()), use_awaitable) &&
                  async_await(d.context, acceptor.accept(), use_awaitable));
    CHECK(server.is_open());
  }());
}

TEST_CASE("sockets of datagrams serve coroutines of asio", "[asio][device]") {
  asio_device d;
  constexpr std::uint32_t qkey = 0x1234;
  datagram_socket a = d.rt.open_datagram({.qkey = qkey});
  datagram_socket b = d.rt.open_datagram({.qkey = qkey});
  local_mr out = d.rt.memory().allocate_zeroed(8);
  local_mr in = d.rt.memory().allocate_zeroed(b.payload_max());
  cancellable wait;
  b.post_recv(in.slice());
  async_await(d.context, b.next_datagram(), wait.callback<datagram>());
  wait.cancel(d.rt);
  CHECK(wait.code() == asio::error::operation_aborted);
  d.run([&]() -> asio::awaitable<void> {
    // The receive that was cancelled lost nothing.
    const std::size_t sent =
        co_await async_await(d.context, a.send_to(b.address(), out), use_awaitable);
    CHECK(sent == 8);
    const datagram first = co_await async_await(d.context, b.next_datagram(), use_awaitable);
    CHECK(first.sender.qpn == a.address().qpn);
    const auto [second, again] =
        co_await (async_await(d.context, b.recv(in.slice()), use_awaitable) &&
                  async_await(d.context, a.send_to_with_imm(b.address(), out, 7), use_awaitable));
    static_cast<void>(again);
    CHECK(second.immediate == 7u);
  }());
}

TEST_CASE("messages of shared receives come to coroutines of asio", "[asio][device]") {
  asio_device d;
  shared_receives& stock =
      d.rt.share_receives({.buffers = 4, .buffer_bytes = 64, .for_messages = true});
  connection_options with_stock;
  with_stock.receives_from = &stock;
  listener acceptor = d.rt.listen({}, {}, with_stock);
  auto connected = d.rt.run(when_all(d.rt.connect(acceptor.local_endpoint()), acceptor.accept()));
  connection& client = std::get<0>(connected);
  connection& server = std::get<1>(connected);
  local_mr out = d.rt.memory().allocate_zeroed(8);
  cancellable wait;
  async_await(d.context, stock.next_message(), wait.callback<shared_receives::message>());
  wait.cancel(d.rt);
  CHECK(wait.code() == asio::error::operation_aborted);
  d.run([&]() -> asio::awaitable<void> {
    for (int n = 0; n < 8; ++n) {
      co_await async_await(d.context, client.send(out), use_awaitable);
      const shared_receives::message came =
          co_await async_await(d.context, stock.next_message(), use_awaitable);
      CHECK(came.qpn() == server.verbs().num());
      CHECK(came.size_bytes() == 8);
    }
  }());
}

TEST_CASE("a posted request that asio cancels happens all the same, and keeps its memory",
          "[asio][device]") {
  asio_device d;
  connection_options patient;
  patient.min_rnr_timer = 28;  // 164 ms, of which there are 7.
  listener acceptor = d.rt.listen({}, {}, patient);
  auto [client, server] =
      d.rt.run(when_all(d.rt.connect(acceptor.local_endpoint()), acceptor.accept()));
  local_mr out = d.rt.memory().allocate_zeroed(8);
  local_mr in = d.rt.memory().allocate_zeroed(8);
  out.bytes()[0] = std::byte{7};
  cancellable wait;
  async_await(d.context, client.send(out), wait.callback<std::size_t>());
  // Only a terminal cancellation ends the wait: the message may be under way.
  wait.signal.emit(asio::cancellation_type::total);
  wait.signal.emit(asio::cancellation_type::partial);
  d.rt.run(test::due_timers_fired());
  CHECK_FALSE(wait.has_ended);
  wait.cancel(d.rt);
  CHECK(wait.code() == asio::error::operation_aborted);
  out.reset();
  const message came = d.rt.run(server.recv(in));
  CHECK(came.size_bytes == 8);
  CHECK(in.bytes()[0] == std::byte{7});
  CHECK(client.is_open());
}
