#include "datagrams.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/when_all.hpp>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

namespace perf {
namespace {

using namespace std::chrono_literals;

/// Seconds without an operation's end after which a datagram counts as lost.
constexpr std::chrono::seconds patience{5};

cordma::datagram_options socket_options(const cordma::runtime& rt, const job& what) {
  const cordma::verbs::queue_pair_capabilities wanted = connection_options(what).capabilities;
  return {.port = rt.connection_defaults().port,
          .gid_index = rt.connection_defaults().gid_index,
          .capacity = {.send_wr_max = wanted.send_wr_max,
                       .recv_wr_max = std::max(wanted.recv_wr_max, 2 * what.depth),
                       .recv_sge_max = 1,
                       .inline_max = wanted.inline_max}};
}

cordma::datagram_options socket_options(const cordma::runtime& rt, const job& what,
                                        const cordma::datagram_address& to) {
  cordma::datagram_options made = socket_options(rt, what);
  made.qkey = to.qkey;
  return made;
}

/// Posts a buffer for each datagram under way, and for each that is being given back.
cordma::local_mr post_buffers(cordma::runtime& rt, cordma::datagram_socket& socket,
                              const job& what) {
  const std::size_t each = socket.payload_max();
  const std::uint32_t count = 2 * what.depth;
  cordma::local_mr memory = rt.memory().allocate_zeroed(count * each);
  for (std::uint32_t i = 0; i < count; ++i) socket.post_recv(memory.slice(i * each, each));
  return memory;
}

cordma::task<> give_back(cordma::datagram_socket& socket) {
  for (;;) {
    const cordma::datagram said = co_await socket.next_datagram();
    co_await socket.send_to(said.sender, said.payload());
    socket.post_recv(said.slices[0]);
  }
}

cordma::task<> give_all_back(cordma::datagram_socket& socket, std::uint32_t count) {
  co_await cordma::with_scope([&](cordma::scope& echoes) -> cordma::task<> {
    for (std::uint32_t i = 0; i < count; ++i) echoes.spawn(give_back(socket));
    co_return;
  });
}

}  // namespace

ibv_gid make_group(const ibv_gid& own) {
  std::random_device random;
  ibv_gid group{};
  const std::uint32_t number = random();
  constexpr std::uint8_t global[]{0xff, 0x0e}, mapped[]{0xff, 0xff, 239};
  const bool is_ip4 = cordma::verbs::to_string(own).starts_with("::ffff:");
  if (is_ip4) {
    std::ranges::copy(mapped, group.raw + 10);
  } else {
    std::ranges::copy(global, group.raw);
  }
  for (int i = 0; i < 3; ++i) group.raw[13 + i] = std::uint8_t(number >> (8 * i));
  return group;
}

datagram_end::datagram_end(cordma::runtime& rt, const job& what, const remote_end& there)
    : rt_{rt},
      server_{cordma::datagram_address::decode(there.datagrams)},
      socket_{rt.open_datagram(socket_options(rt, what, server_))},
      buffers_{post_buffers(rt, socket_, what)} {}

cordma::task<> datagram_end::prepare() {
  if (std::exchange(is_prepared_, true)) co_return;
  if (server_.qpn == cordma::datagram_address::multicast_qpn)
    group_ = co_await socket_.join(server_.path.gid, {.send_only = true});
  co_await socket_.find_route(server_);
}

cordma::task<> datagram_end::exchange_each(meter& m, cordma::local_mr_slice said) {
  clock::time_point start = clock::now();
  while (m.takes_another(start)) {
    while (m.is_early(start)) co_await cordma::sleep_until(m.next_wake(start));
    if (!m.begins(start)) break;
    co_await socket_.send_to(server_, said);
    const cordma::datagram answer = co_await socket_.next_datagram();
    if (answer.size_bytes != said.size_bytes()) {
      throw std::runtime_error{"an echo of " + std::to_string(answer.size_bytes) + " bytes, to " +
                               std::to_string(said.size_bytes())};
    }
    socket_.post_recv(answer.slices[0]);
    start = m.record(start);
  }
}

cordma::task<> datagram_end::watch(const meter& m) {
  for (std::uint64_t before = 0;; before = m.done()) {
    co_await rt_.executor().sleep_for(patience);
    if (m.done() != before || m.is_idle()) continue;
    throw std::runtime_error{
        "no datagram has come back for 5 seconds: one was lost, and nothing repeats it"};
  }
}

cordma::task<> serve_datagrams(cordma::runtime& rt, job what, const teller& tell,
                               cordma::connection conn) {
  cordma::datagram_socket socket = rt.open_datagram(socket_options(rt, what));
  const cordma::local_mr buffers = post_buffers(rt, socket, what);
  cordma::multicast_membership group;
  cordma::datagram_address address = socket.address();
  if (what.op == operation::multicast) {
    group = co_await socket.join(make_group(address.path.gid));
    address = group.address();
  }
  tell({.qpn = conn.peer_qpn(), .datagrams = address.encode()});
  // The client sends nothing on the connection, so a wait there ends with the connection.
  static_cast<void>(co_await cordma::when_any(give_all_back(socket, what.depth),
                                              cordma::as_result(conn.next_message())));
  if (conn.was_closed_by_peer()) co_return;
  throw cordma::error{conn.why_lost().value_or(
      cordma::failure{.code = cordma::errc::disconnected, .call = "cordma-perf"})};
}

}  // namespace perf
