#pragma once

#include "cm/event_channel.hpp"
#include "cm/id.hpp"
#include "cm/listener.hpp"
#include "support/device.hpp"
#include "support/manual_executor.hpp"
#include "support/raw_verbs.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/verbs/device.hpp>
#include <cordma/verbs/gid.hpp>
#include <cordma/verbs/memory_region.hpp>
#include <cordma/verbs/queue_pair.hpp>
#include "verbs/gid.hpp"

#include <netinet/in.h>
#include <catch2/catch.hpp>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cordma::cm::test {

namespace raw = support::raw;
using cordma::test::until;
using support::started;

/// An address that leads to the device under test by rdma_cm, with port 0.
inline socket_address device_address(const verbs::context& ctx, std::uint8_t port) {
  if (cordma::test::is_soft()) return socket_address::loopback(0);
  const auto table = ctx.gid_table(port);
  const verbs::gid_entry chosen = verbs::choose_gid(table, {.family = verbs::gid_request::ip::v4});
  sockaddr_in address{};
  address.sin_family = AF_INET;
  std::memcpy(&address.sin_addr, chosen.gid.raw + 12, sizeof address.sin_addr);
  return {reinterpret_cast<const sockaddr*>(&address), sizeof address};
}

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* const first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

/// The text in a field of private data, without its padding.
inline std::string text_of(const peer_message& message) {
  const auto data = message.data();
  const std::string whole(reinterpret_cast<const char*>(data.data()), data.size());
  return whole.substr(0, whole.find('\0'));
}

template <class Action>
failure failure_thrown(Action action) {
  try {
    action();
  } catch (const error& e) {
    return e.failure();
  }
  FAIL("nothing was thrown");
  return {};
}

/// The device under test, an executor with rdma_cm's events, and memory for two queue pairs.
struct rig {
  rig() = default;
  explicit rig(executor_options options) : executor{std::move(options)} {}

  verbs::queue_pair make_queue_pair() {
    return {pd, cq, cq, {.send_wr_max = 4, .recv_wr_max = 4, .inline_max = 16}};
  }
  listener listen(int backlog = listener::default_backlog) { return {channel, address, backlog}; }

  /// Runs an operation and gives what it ended with.
  template <class Op>
  auto outcome(Op op) {
    return executor.run(as_result(std::move(op)));
  }
  template <class Op>
  failure failure_of(Op op) {
    auto result = outcome(std::move(op));
    REQUIRE(result.has_failure());
    return result.failure();
  }
  /// Runs the event loop until `condition()`.
  template <class Condition>
  void run_until(Condition condition) {
    executor.run(with_timeout(until(executor, std::move(condition)), std::chrono::seconds{60}));
  }
  /// Runs an operation that was started to its end.
  template <class Op>
  auto end_of(started<Op>& op) {
    run_until([&] { return op.has_ended(); });
    return op->take_result();
  }
  /// Polls until `count` completions came; the device finishes them within a bounded time.
  void reap(std::size_t count) {
    std::size_t seen = 0;
    for (unsigned long spins = 0; seen < count && spins < 500'000'000; ++spins)
      seen += raw::poll(cq, [](const ibv_wc&) {});
    REQUIRE(seen == count);
  }
  /// Sends 64 bytes from one queue pair to the other, and compares.
  void send(verbs::queue_pair& from, verbs::queue_pair& to) {
    std::memset(bytes.data(), 0, 64);
    for (std::size_t i = 0; i < 64; ++i) bytes[4096 + i] = std::byte(i + 1);
    REQUIRE(raw::try_post(to, raw::receive{raw::piece(bytes.data(), 64, mr.lkey())}) == 0);
    raw::request message{IBV_WR_SEND, raw::piece(bytes.data() + 4096, 64, mr.lkey())};
    REQUIRE(raw::try_post(from, message) == 0);
    reap(2);
    CHECK(std::memcmp(bytes.data(), bytes.data() + 4096, 64) == 0);
  }

  verbs::context ctx{cordma::test::device_name()};
  verbs::port_info port = ctx.active_port();
  socket_address address = device_address(ctx, port.number);
  verbs::protection_domain pd{ctx};
  std::vector<std::byte> bytes = std::vector<std::byte>(8192);
  verbs::memory_region mr{pd, bytes.data(), bytes.size(), verbs::access::local_write};
  verbs::completion_queue cq{ctx, 64};
  cordma::executor executor;
  event_channel channel{executor};
};

/// One end of a connection.
struct side {
  explicit side(rig& of) : qp{of.make_queue_pair()} {}

  verbs::queue_pair qp;
  std::vector<std::byte> says{};
  parameters own{};
  id conn;
};

inline void get_ready(side& one) {
  one.qp.to_rtr(one.conn.rtr(one.own));
  one.qp.to_rts(one.conn.rts(one.own));
}
inline void initialise(side& one) {
  const init_attributes first = one.conn.init();
  one.qp.to_init(first.port, first.pkey_index);
}

inline task<> serve(listener& from, side& one) {
  one.conn = co_await from.accept();
  initialise(one);
  get_ready(one);
  one.conn.accept(one.qp.num(), one.says, one.own);
  co_await one.conn.established();
}

/// Resolves, and brings the queue pair to INIT.
inline task<> reach(rig& of, side& one, socket_address to) {
  one.conn = id{of.channel};
  co_await one.conn.resolve(to);
  initialise(one);
}
inline task<> join(rig& of, side& one, socket_address to) {
  co_await reach(of, one, to);
  co_await one.conn.connect(one.qp.num(), one.says, one.own);
  get_ready(one);
  one.conn.establish();
}

/// Resolves, sends the request, and waits for the reply.
inline task<> knock(rig& of, side& one, socket_address to) {
  co_await reach(of, one, to);
  co_await one.conn.connect(one.qp.num(), one.says, one.own);
}

/// A client whose request is under way.
struct knocking {
  knocking(rig& r, const socket_address& to)
      : client{r}, knocks{r.executor, knock(r, client, to)} {}

  side client;
  started<task<>> knocks;
};

/// Two connected queue pairs.
struct connected : rig {
  connected() { executor.run(when_all(serve(from, server), join(*this, client, to))); }

  listener from = listen();
  socket_address to = from.local_address();
  side server{*this};
  side client{*this};
};

}  // namespace cordma::cm::test
