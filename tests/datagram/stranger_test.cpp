// A socket of datagrams, and strangers who send to it.
#include "sockets.hpp"
#include "support/allocations.hpp"
#include "support/outcome.hpp"

#include <cordma/datagram/datagram_socket.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

using namespace cordma;
using namespace cordma::test;

namespace {

/// Changes what the device says of each receive, while it lives.
class changed_receives {
 public:
  using change = std::function<void(ibv_wc&)>;
  changed_receives(ibv_context& of, change how)
      : of_{of}, real_{std::exchange(of.ops.poll_cq, &poll)} {
    how_ = std::move(how);
    real_poll_ = real_;
  }
  changed_receives(const changed_receives&) = delete;
  changed_receives& operator=(const changed_receives&) = delete;
  ~changed_receives() { of_.ops.poll_cq = real_; }

 private:
  using function = int (*)(ibv_cq*, int, ibv_wc*);
  static int poll(ibv_cq* cq, int most, ibv_wc* wcs) {
    const int count = real_poll_(cq, most, wcs);
    for (int n = 0; n < count; ++n)
      if (wcs[n].status == IBV_WC_SUCCESS && wcs[n].opcode == IBV_WC_RECV) how_(wcs[n]);
    return count;
  }
  static inline change how_;
  static inline function real_poll_ = nullptr;
  ibv_context& of_;
  function real_;
};

}  // namespace

TEST_CASE("a flood by many strangers costs a socket nothing, and a friend's datagram arrives",
          "[datagram][device]") {
  constexpr std::size_t buffers = 4;
  two_sockets s;
  const local_mr memory = s.text("x");
  std::vector<datagram_socket> strangers;
  for (int n = 0; n < 32; ++n) {
    strangers.push_back(s.rt.open_datagram({.qkey = qkey, .capacity = {.recv_wr_max = 1}}));
    s.rt.run(strangers.back().find_route(s.b.address()));
  }
  s.post_to(s.b, buffers);
  const auto flood = [&](int rounds) -> task<> {
    for (int round = 0; round < rounds; ++round)
      for (datagram_socket& one : strangers) co_await one.send_to(s.b.address(), memory);
  };
  auto before = support::allocation_count();
  s.rt.run(flood(100));
  CHECK(support::allocation_count() - before <= 1);  // The frame of `flood`.
  for (std::size_t n = 0; n < buffers; ++n)
    CHECK(s.next(s.b).sender.qpn == strangers[n].address().qpn);
  local_mr into = s.buffer();
  const auto listen = [&]() -> task<> {
    for (datagram_socket& one : strangers) {
      s.b.post_recv(into.slice());
      co_await one.send_to(s.b.address(), memory);
      co_await s.b.next_datagram();
    }
  };
  before = support::allocation_count();
  s.rt.run(listen());
  CHECK(support::allocation_count() - before <= 1);
  s.post_to(s.b);
  s.rt.run(s.a.send_to(s.b.address(), s.text("friend")));
  const datagram came = s.next(s.b);
  CHECK(text_of(came) == "friend");
  CHECK(came.sender.qpn == s.a.address().qpn);
  CHECK(s.b.counters().routes_made == 0);
}

TEST_CASE("a socket that answers all who ask keeps no more routes than its limit",
          "[datagram][device]") {
  constexpr std::size_t routes_max = 4;
  constexpr int paths = 64;
  two_sockets s{{.qkey = qkey, .routes_max = paths}, {.qkey = qkey, .routes_max = routes_max}};
  const local_mr memory = s.text("x");
  std::uint64_t most = 0;
  for (int n = 0; n < 4 * paths; ++n) {
    datagram_address to = s.b.address();
    to.path.traffic_class = std::uint8_t(n % paths * 4);  // Each is a path of its own.
    s.post_to(s.b);
    s.rt.run(s.a.send_to(to, memory));
    const datagram asked = s.next(s.b);
    s.rt.run(s.b.send_to(asked.sender, memory));
    s.buffers.clear();
    const datagram_counters& now = s.b.counters();
    most = std::max(most, now.routes_made - now.routes_given_up);
  }
  CHECK(s.b.counters().routes_made == 4 * paths);
  CHECK(most >= routes_max);
  CHECK(most <= routes_max + 1);
}

TEST_CASE("a datagram that is shorter than its header has no bytes, and the next one arrives",
          "[datagram][device]") {
  two_sockets s;
  const local_mr memory = s.text("text");
  s.post_to(s.b, 2);
  {
    const changed_receives shorter{*s.rt.context().native_handle(),
                                   [](ibv_wc& wc) { wc.byte_len = 8; }};
    s.rt.run(s.a.send_to(s.b.address(), memory));
    const datagram came = s.next(s.b);
    CHECK(came.size_bytes == 0);
    CHECK(came.payload().empty());
  }
  s.rt.run(s.a.send_to(s.b.address(), memory));
  CHECK(text_of(s.next(s.b)) == "text");
}

TEST_CASE("a datagram without a header names nobody on Ethernet, and the next one arrives",
          "[datagram][device]") {
  two_sockets s;
  if (!s.rt.context().active_port().is_ethernet()) return;  // A LID names the sender.
  const local_mr memory = s.text("text");
  s.post_to(s.b, 2);
  {
    const changed_receives headless{*s.rt.context().native_handle(),
                                    [](ibv_wc& wc) { wc.wc_flags &= ~unsigned{IBV_WC_GRH}; }};
    s.rt.run(s.a.send_to(s.b.address(), memory));
    const datagram came = s.next(s.b);
    CHECK(text_of(came) == "text");
    CHECK_THAT(s.failure_of(s.b.send_to(came.sender, memory)).to_string(),
               Catch::Contains("neither a gid nor a lid"));
  }
  s.rt.run(s.a.send_to(s.b.address(), memory));
  CHECK(s.next(s.b).sender.qpn == s.a.address().qpn);
}
