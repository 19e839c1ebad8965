#include <cordma/datagram/datagram_socket.hpp>

#include "sockets.hpp"
#include "support/allocations.hpp"
#include "support/counted_bytes.hpp"
#include "support/leaks.hpp"
#include "support/manual_executor.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

using namespace cordma;
using namespace cordma::test;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

TEST_CASE("a datagram arrives with its sender's address, which takes an answer",
          "[datagram][device]") {
  two_sockets s;
  s.post_to(s.a);
  s.post_to(s.b);
  const local_mr question = s.text("question");
  CHECK(s.rt.run(s.a.send_to(s.b.address(), question)) == 8);
  const datagram asked = s.next(s.b);
  CHECK(text_of(asked) == "question");
  CHECK_FALSE(asked.immediate.has_value());
  CHECK_FALSE(asked.was_multicast);
  CHECK(asked.sender.qpn == s.a.address().qpn);
  const local_mr answer = s.text("answer");
  s.rt.run(s.b.send_to_with_imm(asked.sender, answer, 0x01020304));
  const datagram answered = s.next(s.a);
  CHECK(text_of(answered) == "answer");
  CHECK(answered.immediate == 0x01020304);
}

TEST_CASE("a socket sends to itself, and datagrams of no bytes arrive", "[datagram][device]") {
  two_sockets s;
  s.post_to(s.a, 2);
  const local_mr memory = s.text("x");
  s.rt.run(s.a.send_to(s.a.address(), memory.slice(0, 0)));
  CHECK(s.next(s.a).size_bytes == 0);
  s.rt.run(s.a.send_to(s.a.address(), memory));
  CHECK(text_of(s.next(s.a)) == "x");
}

TEST_CASE("a datagram has an MTU at most, and longer ones are refused by name",
          "[datagram][device]") {
  two_sockets s;
  s.post_to(s.b);
  const local_mr most = s.rt.memory().allocate_zeroed(s.a.payload_max() + 1);
  CHECK(s.rt.run(s.a.send_to(s.b.address(), most.slice(0, s.a.payload_max()))) ==
        s.a.payload_max());
  CHECK(s.next(s.b).size_bytes == s.a.payload_max());
  const failure refused = s.failure_of(s.a.send_to(s.b.address(), most));
  CHECK(refused.code == errc::wrong_length);
  CHECK_THAT(refused.to_string(), Contains(std::to_string(s.a.payload_max())));
  CHECK_FALSE(s.a.why_lost().has_value());
}

TEST_CASE("a buffer that is shorter than an MTU is refused, as a stranger could end the socket",
          "[datagram][device]") {
  two_sockets s;
  local_mr small = s.rt.memory().allocate_zeroed(s.b.payload_max());
  const local_mr_slice too_short = small.slice(1, s.b.payload_max() - 1);
  CHECK_THROWS_WITH(s.b.post_recv(too_short),
                    Contains("where " + std::to_string(s.b.payload_max()) + " is the least"));
  CHECK(s.failure_of(s.b.recv(too_short)).code == errc::wrong_length);
  s.b.post_recv(small.slice());
  s.rt.run(s.a.send_to(s.b.address(), s.text("fits")));
  CHECK(text_of(s.next(s.b)) == "fits");
}

TEST_CASE("datagrams with another Q_Key, and those that find no buffer, are lost",
          "[datagram][device]") {
  two_sockets s;
  const local_mr memory = s.text("12");
  s.rt.run(s.a.send_to(s.b.address(), memory.slice(0, 1)));  // There is no buffer yet.
  s.post_to(s.b);
  datagram_address wrong = s.b.address();
  wrong.qkey ^= 1;
  s.rt.run(s.a.send_to(wrong, memory.slice(0, 1)));
  s.rt.run(s.a.send_to(s.b.address(), memory.slice(1, 1)));
  CHECK(text_of(s.next(s.b)) == "2");
}

TEST_CASE("the port counts the datagrams that had a wrong Q_Key", "[datagram][device]") {
  two_sockets s;
  const local_mr memory = s.text("x");
  const std::uint32_t before = s.rt.metrics().qkey_violations.value();
  datagram_address wrong = s.b.address();
  wrong.qkey ^= 1;
  for (int n = 0; n < 3; ++n) s.rt.run(s.a.send_to(wrong, memory));
  s.post_to(s.b);
  s.rt.run(s.a.send_to(s.b.address(), memory));
  CHECK(text_of(s.next(s.b)) == "x");
  if (is_soft() || is_rxe()) CHECK(s.rt.metrics().qkey_violations == std::min(before + 3, 0xffffu));
}

TEST_CASE("a random Q_Key is no other socket's, nor a privileged one", "[datagram][device]") {
  two_sockets s{{}, {}};
  CHECK(s.a.address().qkey != s.b.address().qkey);
  CHECK((s.a.address().qkey & 0x8000'0000) == 0);
  s.post_to(s.b);
  s.rt.run(s.a.send_to(datagram_address::parse(s.b.address().to_string()), s.text("told")));
  CHECK(text_of(s.next(s.b)) == "told");
}

TEST_CASE("with the same random bytes two sockets have the same Q_Key", "[datagram][device]") {
  two_sockets s;
  const auto next_qkey = [&] {
    counted_bytes bytes;
    const cordma::detail::random_scope replaced{bytes};
    return s.rt.open_datagram().address().qkey;
  };
  CHECK(next_qkey() == next_qkey());
}

TEST_CASE("a receive that times out loses no datagram", "[datagram][device]") {
  two_sockets s;
  s.post_to(s.b);
  CHECK(s.failure_of(with_timeout(s.b.next_datagram(), 1ms)).code == errc::timed_out);
  s.rt.run(s.a.send_to(s.b.address(), s.text("kept")));
  CHECK(text_of(s.next(s.b)) == "kept");
}

TEST_CASE("a socket that is dropped ends what waits, and leaves nothing", "[datagram][device]") {
  runtime rt{test::on_test_device()};
  auto socket = std::make_unique<datagram_socket>(rt.open_datagram());
  local_mr buffer = rt.memory().allocate_zeroed(socket->payload_max());
  socket.reset();
  const std::string before = test::holdings();
  socket = std::make_unique<datagram_socket>(rt.open_datagram());
  socket->post_recv(buffer.slice());
  rt.run(socket->send_to(socket->address(), buffer.slice(0, 1)));
  CHECK(rt.run(with_timeout(socket->next_datagram(), 10s)).size_bytes == 1);
  const auto wait = [&]() -> task<failure> {
    auto last = co_await as_result(socket->next_datagram());
    co_return last.has_failure() ? last.failure() : failure{};
  };
  const auto drop = [&]() -> task<> {
    socket.reset();
    co_return;
  };
  auto [ended, dropped] = rt.run(when_all(wait(), drop()));
  CHECK(ended.code == errc::closed);
  CHECK(test::settled_holdings(rt.executor(), before) == before);
}

TEST_CASE("a socket that is dropped while a route is looked for ends its datagram",
          "[datagram][device]") {
  runtime rt{test::on_test_device()};
  if (!rt.context().active_port().is_ethernet()) return;  // A LID needs no search.
  auto socket = std::make_unique<datagram_socket>(rt.open_datagram());
  const local_mr memory = rt.memory().allocate_zeroed(8);
  const auto send = [&]() -> task<failure> {
    auto sent = co_await as_result(socket->send_to(socket->address(), memory));
    co_return sent.has_failure() ? sent.failure() : failure{};
  };
  const auto drop = [&]() -> task<> {
    socket.reset();
    co_return;
  };
  auto [ended, dropped] = rt.run(when_all(send(), drop()));
  CHECK(ended.code == errc::closed);
}

TEST_CASE("a task that looks for a route outlives its socket", "[datagram][device]") {
  runtime rt{test::on_test_device()};
  std::optional<datagram_socket> socket{rt.open_datagram()};
  task<> search = socket->find_route(socket->address());
  const auto drop = [&]() -> task<> {
    socket.reset();
    co_return;
  };
  auto [ended, dropped] = rt.run(when_all(as_result(std::move(search)), drop()));
  if (ended.has_failure()) CHECK(ended.failure().code == errc::closed);
}

TEST_CASE("routes are kept, and given up for others beyond their limit", "[datagram][device]") {
  two_sockets s{{.qkey = qkey, .routes_max = 2}};
  const local_mr memory = s.text("x");
  for (int round = 0; round < 3; ++round) s.rt.run(s.a.send_to(s.b.address(), memory));
  CHECK(s.a.counters().routes_made == 1);
  CHECK(s.a.counters().routes_found == 3);
  const support::started known{s.rt.executor(), s.a.find_route(s.b.address())};
  CHECK(known.has_ended());  // A known route needs no search.
  for (std::uint8_t traffic_class = 4; traffic_class < 40; traffic_class += 4) {
    datagram_address other = s.b.address();
    other.path.traffic_class = traffic_class;
    s.rt.run(s.a.send_to(other, memory));
  }
  CHECK(s.a.counters().routes_made == 10);
  CHECK(s.a.counters().routes_given_up >= 7);
  s.post_to(s.b);
  s.rt.run(s.a.send_to(s.b.address(), s.text("again")));
  CHECK(text_of(s.next(s.b)) == "again");
}

TEST_CASE("sending on a known route, and receiving, allocates nothing", "[datagram][device]") {
  two_sockets s;
  const local_mr memory = s.text("x");
  local_mr into = s.buffer();
  const auto exchange = [&](int count) -> task<> {
    for (int n = 0; n < count; ++n) {
      s.b.post_recv(into.slice());
      co_await s.a.send_to(s.b.address(), memory);
      co_await s.b.next_datagram();
    }
  };
  s.rt.run(exchange(4));
  const auto before = support::allocation_count();
  s.rt.run(exchange(100));
  CHECK(support::allocation_count() - before <= 1);  // The frame of `exchange`.
}

TEST_CASE("datagrams that several tasks send in one turn get one completion entry",
          "[datagram][device]") {
  two_sockets s;
  const local_mr memory = s.text("x");
  s.rt.run(s.a.send_to(s.b.address(), memory));  // The socket that posted last has a group.
  event all{s.rt.executor()};
  const auto one = [&]() -> task<> {
    co_await all.wait();
    co_await s.a.send_to(s.b.address(), memory);
  };
  const auto go = [&]() -> task<> {
    all.set();
    co_return;
  };
  const std::uint64_t before = s.rt.metrics().completions.completions;
  s.rt.run(when_all(one(), one(), one(), one(), go()));
  CHECK(s.rt.metrics().completions.completions - before == 1);
  CHECK(s.a.counters().routes_found == 5);
}

TEST_CASE("a kept operation does not keep others from their routes", "[datagram][device]") {
  two_sockets s{{.qkey = qkey, .routes_max = 1}};
  const local_mr memory = s.text("x");
  datagram_address other = s.b.address();
  other.path.traffic_class = 8;
  const auto both = [&]() -> task<> {
    auto kept = s.a.send_to(s.b.address(), memory);
    co_await kept;
    co_await s.a.send_to(other, memory);
  };
  CHECK_NOTHROW(s.rt.run(with_timeout(both(), 10s)));
}

TEST_CASE("an address that no queue pair can have is refused by name", "[datagram][device]") {
  two_sockets s;
  const local_mr memory = s.text("x");
  s.rt.run(s.a.send_to(s.b.address(), memory));
  datagram_address wrong = s.b.address();
  wrong.qpn = 1 << 24;
  CHECK_THAT(s.failure_of(s.a.send_to(wrong, memory)).to_string(), Contains("qpn 16777216"));
  CHECK_THAT(s.failure_of(s.a.send_to({}, memory)).to_string(),
             Contains("neither a gid nor a lid"));
  CHECK_FALSE(s.a.why_lost().has_value());
}

TEST_CASE("options of a socket that are out of range are refused by name", "[datagram][device]") {
  runtime rt{test::on_test_device()};
  CHECK_THROWS_WITH(rt.open_datagram({.routes_max = 0}), Contains("routes_max 0"));
  CHECK_THROWS_WITH(rt.open_datagram({.qkey = 0x8000'0000}), Contains("qkey 2147483648"));
  CHECK_THROWS_WITH(rt.open_datagram({.capacity = {.recv_sge_max = 5}}),
                    Contains("recv_sge_max 5"));
  CHECK_THROWS_WITH(rt.open_datagram({.gid_index = 200}), Contains("200"));
  CHECK_THROWS_AS(rt.open_datagram({.port = 9}), error);
}
