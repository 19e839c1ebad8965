#include "scenarios.hpp"
#include "support.hpp"

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

/// Sockets of datagrams that send to each other. Datagrams may be lost, come twice, or late.
struct gossip : cast {
  gossip(sim::world& of, unsigned count) : cast{of, count}, addresses(count) {}
  static constexpr unsigned datagrams_of_each = 60;
  static constexpr unsigned buffers = 32;
  std::vector<std::optional<datagram_address>> addresses;
  unsigned received = 0;
  unsigned still_sending = 0;

  [[nodiscard]] std::optional<unsigned> owner_of(const datagram_address& address) const {
    for (unsigned n = 0; n < size(); ++n) {
      if (addresses[n]->qpn == address.qpn &&
          std::memcmp(&addresses[n]->path.gid, &address.path.gid, sizeof(ibv_gid)) == 0)
        return n;
    }
    return {};
  }

  /// The immediate data are the offset and the sender, so that both can be checked.
  task<> send_all(datagram_socket& from, runtime& rt, unsigned self) {
    const const_local_mr registered = registered_pattern(rt.memory());
    for (unsigned n = 0; n < datagrams_of_each; ++n) {
      const unsigned to = (self + 1 + unsigned(w.random(size() - 2))) % size();
      const part sent = any_part(w, from.payload_max());
      co_await from.send_to_with_imm(*addresses[to], sent.of(registered),
                                     std::uint32_t(sent.offset << 4 | self));
      if (w.random(5) == 0) co_await sleep_for(moment(2ms));
    }
    --still_sending;
  }

  task<> receive_all(datagram_socket& at) {
    for (;;) {
      result<datagram> next = co_await as_result(with_timeout(at.next_datagram(), 1s));
      if (code_of(next) == errc::timed_out) {
        if (still_sending == 0) co_return;
        continue;
      }
      const datagram got = std::move(next).value();
      const std::uint32_t told = got.immediate.value();
      require(is_pattern(got.payload().bytes(), told >> 4), "a datagram: other bytes");
      require(owner_of(got.sender) == std::optional{told & 15}, "a datagram: another sender");
      ++received;
      at.post_recv(got.slices);
    }
  }

  task<> live(runtime& rt, unsigned self) {
    datagram_options options;
    options.qkey = 0x1234;
    datagram_socket socket = rt.open_datagram(options);
    local_mr memory = rt.memory().allocate_uninitialized(buffers * socket.payload_max());
    for (unsigned n = 0; n < buffers; ++n)
      socket.post_recv(memory.slice(n * socket.payload_max(), socket.payload_max()));
    ++still_sending;
    addresses[self] = socket.address();
    while (!std::ranges::all_of(addresses, [](const auto& a) { return a.has_value(); }))
      co_await sleep_for(100us);
    co_await when_all(send_all(socket, rt, self), receive_all(socket));
  }
};

}  // namespace

void play_datagrams(sim::world& w) {
  const auto all = start_all<gossip>(w, 2 + unsigned(w.random(2)));
  w.run(10min);
  all->require(all->received > 0, "no datagram arrived");
}

}  // namespace cordma::test
