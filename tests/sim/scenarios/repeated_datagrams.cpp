#include "persistent.hpp"
#include "scenarios.hpp"

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

/// Sockets of datagrams that are opened again after each error.
struct repeated_gossip : persistent {
  repeated_gossip(sim::world& of, unsigned count) : persistent{of, count}, known(count) {
    end_together = true;
  }
  static constexpr unsigned buffers = 32;
  std::vector<std::vector<datagram_address>> known;  ///< all addresses of each host; one a socket

  [[nodiscard]] bool has_address(unsigned host, const datagram_address& address) const {
    return std::ranges::any_of(known[host], [&](const datagram_address& one) {
      return one.qpn == address.qpn &&
             std::memcmp(&one.path.gid, &address.path.gid, sizeof(ibv_gid)) == 0;
    });
  }

  /// The immediate data are the offset, whether all is calm, and the sender.
  task<> send_all(datagram_socket& from, runtime& rt, unsigned self) {
    const const_local_mr registered = registered_pattern(rt.memory());
    while (!are_all_done()) {
      const unsigned to = (self + 1 + unsigned(w.random(size() - 2))) % size();
      if (!known[to].empty()) {
        const part sent = any_part(w, from.payload_max());
        co_await from.send_to_with_imm(
            known[to].back(), sent.of(registered),
            std::uint32_t(sent.offset << 5) | std::uint32_t(is_calm) << 4 | self);
      }
      co_await sleep_for(moment(20ms));
    }
  }

  task<> receive_all(datagram_socket& at, unsigned self) {
    while (!are_all_done()) {
      result<datagram> next = co_await as_result(with_timeout(at.next_datagram(), 100ms));
      if (code_of(next) == errc::timed_out) continue;
      const datagram got = std::move(next).value();
      const std::uint32_t told = got.immediate.value();
      require(is_pattern(got.payload().bytes(), told >> 5), "a datagram: other bytes");
      require(has_address(told & 15, got.sender), "a datagram: another sender");
      if ((told & 16) != 0) done[self] = 1;
      at.post_recv(got.slices);
    }
  }

  task<> gossip_once(runtime& rt, unsigned self) {
    datagram_options options;
    options.qkey = 0x1234;
    datagram_socket socket = rt.open_datagram(options);
    local_mr memory = rt.memory().allocate_uninitialized(buffers * socket.payload_max());
    for (unsigned n = 0; n < buffers; ++n)
      socket.post_recv(memory.slice(n * socket.payload_max(), socket.payload_max()));
    known[self].push_back(socket.address());
    co_await when_all(send_all(socket, rt, self), receive_all(socket, self));
  }

  task<> live(runtime& rt, unsigned self) {
    co_await go_on(self, [&] { return gossip_once(rt, self); });
  }
};

}  // namespace

void play_repeated_datagrams(sim::world& w) {
  play_until_well(std::make_shared<repeated_gossip>(w, 2 + unsigned(w.random(2))));
}

}  // namespace cordma::test
