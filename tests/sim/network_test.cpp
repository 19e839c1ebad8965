#include "io/host_calls.hpp"
#include "open_network.hpp"
#include "raw_side.hpp"

#include <cordma/coro/sleep.hpp>
#include <cordma/sim.hpp>

#include <sys/socket.h>

#include <catch2/catch.hpp>

#include <cerrno>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

/// A socket of a simulated host, whose calls are tried again each millisecond.
class patient_socket {
 public:
  explicit patient_socket(runtime& rt)
      : calls_{rt.executor().reactor().host().sockets()}, fd_{calls_.make(AF_INET6)} {}
  patient_socket(const patient_socket&) = delete;
  ~patient_socket() { calls_.close(fd_); }

  task<> connect(socket_address to) {
    if (calls_.connect(fd_, to) != -EINPROGRESS) throw std::runtime_error{"connect"};
    for (std::size_t n = 0; calls_.send(fd_, {}) != 0; ++n) {
      if (n == 1000) throw std::runtime_error{"no connection"};
      co_await sleep_for(1ms);
    }
  }
  task<> accept(socket_address local) {
    const int listening = fd_;
    if (calls_.bind(listening, local) != 0 || calls_.listen(listening, 1) != 0)
      throw std::runtime_error{"listen"};
    while ((fd_ = calls_.accept(listening)) == -EAGAIN) co_await sleep_for(1ms);
    calls_.close(listening);
  }
  void send(char byte) {
    const auto bytes = std::as_bytes(std::span{&byte, 1});
    if (calls_.send(fd_, bytes) != 1) throw std::runtime_error{"send"};
  }
  /// Gives the next byte; 0 at the end.
  task<char> receive() {
    std::byte one{};
    for (;;) {
      const std::ptrdiff_t n = calls_.receive(fd_, std::span{&one, 1});
      if (n >= 0) co_return n == 0 ? '\0' : char(one);
      if (n != -EAGAIN) throw std::runtime_error{"receive"};
      co_await sleep_for(1ms);
    }
  }
  /// Asks for the address of the peer. Returns the result of the call.
  [[nodiscard]] int ask_for_peer() const noexcept {
    socket_address peer;
    return calls_.peer_address(fd_, peer);
  }

 private:
  cordma::detail::socket_calls& calls_;
  int fd_;
};

socket_address address_of_b(runtime& rt) {
  return rt.executor().reactor().host().resolve("b", test::sim_port).at(0);
}

}  // namespace

TEST_CASE("bytes that a partition has kept back arrive in their order, and then the end", "[sim]") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    INFO("seed " << seed);
    sim::world w{seed};
    sim::host& a = w.add_host("a");
    sim::host& b = w.add_host("b");
    std::string received;
    b.start([&](runtime& rt) -> task<> {
      patient_socket own{rt};
      co_await own.accept(address_of_b(rt));
      for (;;) {
        const char byte = co_await own.receive();
        if (byte == 0) break;
        received += byte;
      }
    });
    a.start([&](runtime& rt) -> task<> {
      co_await sleep_for(1ms);
      patient_socket own{rt};
      co_await own.connect(address_of_b(rt));
      w.partition(a, b);
      for (char byte = 'a'; byte <= 'z'; ++byte) own.send(byte);
    });
    w.after(1s, [&] {
      CHECK(received == "");
      w.heal();
    });
    w.run();
    CHECK(received == "abcdefghijklmnopqrstuvwxyz");
  }
}

TEST_CASE("a cut keeps the bytes of one direction back, and not of the other", "[sim]") {
  sim::world w{1};
  sim::host& a = w.add_host("a");
  sim::host& b = w.add_host("b");
  time_point at_a, at_b;
  b.start([&](runtime& rt) -> task<> {
    patient_socket own{rt};
    co_await own.accept(address_of_b(rt));
    co_await sleep_for(10ms);
    own.send('b');
    const char received = co_await own.receive();
    CHECK(received == 'a');
    at_b = w.now();
  });
  a.start([&](runtime& rt) -> task<> {
    co_await sleep_for(1ms);
    patient_socket own{rt};
    co_await own.connect(address_of_b(rt));
    w.cut(a, b);
    own.send('a');
    const char received = co_await own.receive();
    CHECK(received == 'b');
    at_a = w.now();
    co_await sleep_for(2s);
  });
  const time_point healed = w.now() + 1s;
  w.after(1s, [&] { w.heal(); });
  w.run();
  CHECK(at_a < healed);
  CHECK(at_b >= healed);
}

TEST_CASE("a cut keeps the answers to a request back, whose message has arrived", "[sim]") {
  test::raw_world both;
  time_point arrived, ended;
  const time_point healed = both.world.now() + 200ms;
  both.world.after(200ms, [&] { both.world.heal(); });
  const std::string found = both.play(
      [&](test::raw_side& own, test::raw_side&) -> task<> {
        co_await sleep_for(50ms);
        both.world.cut(both.b, both.a);
        own.send(test::request(IBV_WR_SEND), {own.piece(0, 8)});
        static_cast<void>(co_await own.completion());
        ended = both.world.now();
      },
      [&](test::raw_side& own, test::raw_side&) -> task<> {
        own.receive(1, {own.piece(0, 8)});
        static_cast<void>(co_await own.completion());
        arrived = both.world.now();
      });
  CHECK(found == "");
  CHECK(arrived < healed);
  CHECK(ended >= healed);
}

TEST_CASE("a socket that ends with the power of its host has no peer", "[sim]") {
  sim::world w{1};
  sim::host& a = w.add_host("a");
  sim::host& b = w.add_host("b");
  int before = -1, after = 0;
  b.start([&](runtime& rt) -> task<> {
    patient_socket own{rt};
    co_await own.accept(address_of_b(rt));
    co_await sleep_for(1s);
  });
  a.start([&](runtime& rt) -> task<> {
    struct last_question {
      ~last_question() { answer = of.ask_for_peer(); }
      const patient_socket& of;
      int& answer;
    };
    co_await sleep_for(1ms);
    patient_socket own{rt};
    co_await own.connect(address_of_b(rt));
    before = own.ask_for_peer();
    const last_question end{own, after};
    co_await sleep_for(1h);
  });
  w.after(500ms, [&] { a.lose_power(); });
  w.run();
  CHECK(before == 0);
  CHECK(after == -ENOTCONN);
}

TEST_CASE("links hold 1 MiB, or in half of the seeds 256 KiB, of what does not arrive", "[sim]") {
  constexpr std::size_t length = 2 << 20;
  unsigned small = 0, usual = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    test::raw_world both{seed};
    std::uint64_t before = 0, after = 0;
    const std::string found = both.play(
        [&](test::raw_side& own, test::raw_side& other) -> task<> {
          std::vector<std::byte> sent(length);
          ibv_mr* const mr = ::ibv_reg_mr(own.pd, sent.data(), length, test::raw_side::access);
          both.world.cut(both.a, both.b);
          before = both.world.events();
          own.send(test::request(IBV_WR_RDMA_WRITE, &other), {{.addr = std::uint64_t(sent.data()),
                                                               .length = std::uint32_t(length),
                                                               .lkey = mr->lkey}});
          co_await sleep_for(10ms);
          after = both.world.events();
          ::ibv_dereg_mr(mr);
        },
        [&](test::raw_side&, test::raw_side&) -> task<> { co_return; });
    CHECK(found == "");
    // A piece of 32 KiB is one event or two, and a little else happens.
    ++(after - before < 50 ? small : usual);
  }
  CHECK(small >= 5);
  CHECK(usual >= 5);
}
