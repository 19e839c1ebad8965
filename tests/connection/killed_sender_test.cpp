// A peer's process that is killed in the middle of a message.
#include "support/peer_process.hpp"
#include "support/skip.hpp"
#include "support/trapped_memory.hpp"
#include "support/unreliable.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/queue/shared_receives.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t long_bytes = 256 * 1024;
constexpr std::uint32_t buffers = 4;

connection_options options_of(bool is_uc) {
  connection_options options = test::deaf();
  if (is_uc) options.transport = verbs::queue_pair_type::uc;
  return options;
}

/// How many buffers have the beginning of a message, and not its end.
unsigned begun(shared_receives& stock) {
  unsigned count = 0;
  for (std::uint32_t n = 0; n < buffers; ++n)
    count +=
        unsigned(stock.bytes(n).front() == std::byte{7} && stock.bytes(n).back() == std::byte{0});
  return count;
}

/// Sends half of a message, and no more.
test::peer_process::body sends_half(bool is_uc) {
  return [is_uc](runtime& rt, std::uint16_t port, const auto& tell) -> task<> {
    test::trapped_memory message{rt.memory(), long_bytes};
    std::ranges::fill(message.memory().bytes(), std::byte{7});
    message.arm(long_bytes / 2, [&] {
      tell(0);
      for (;;) ::pause();
    });
    const endpoint server{"127.0.0.1", port};
    connection conn = co_await rt.connect(server, options_of(is_uc));
    co_await conn.send(message.memory());
  };
}

}  // namespace

TEST_CASE("what a peer that is killed amid a message held of a shared stock comes back",
          "[connection][device][C8]") {
  if (!test::is_soft()) CORDMA_SKIP("the device reads a message itself, so nobody stops amid one");
  const bool is_uc = GENERATE(false, true);
  const bool is_dropped = GENERATE(false, true);
  CAPTURE(is_uc, is_dropped);
  test::peer_process peer{sends_half(is_uc)};
  runtime rt{test::on_test_device()};
  shared_receives& stock =
      rt.share_receives({.buffers = buffers, .buffer_bytes = long_bytes, .for_messages = true});
  connection_options options = options_of(is_uc);
  options.receives_from = &stock;
  listener acceptor = rt.listen({}, {}, options);
  connection_options impatient = options_of(is_uc);
  impatient.rnr_retry = 0;
  auto [other_client, other_server] =
      rt.run(when_all(rt.connect(acceptor.local_endpoint(), impatient), acceptor.accept()));
  peer.start(acceptor.local_endpoint().port);
  std::optional<connection> victim = rt.run(acceptor.accept());
  peer.told_port();
  rt.run(test::until(rt.executor(), [&] { return begun(stock) == 1; }));
  peer.kill();
  rt.run(test::until(rt.executor(), [&] { return !victim->is_open(); }));
  CHECK(victim->why_lost()->call == std::string{"hang_up"});
  if (is_dropped) victim.reset();
  const auto lost = [&] { return rt.metrics().transfer.of(request_kind::receive).failed; };
  rt.run(test::until(rt.executor(), [&] { return lost() == 1; }));
  // Each buffer serves the other connection.
  local_mr out = rt.memory().allocate_zeroed(4);
  std::vector<shared_receives::message> all;
  for (std::uint32_t n = 0; n < buffers; ++n) {
    auto [sent, m] =
        rt.run(when_all(other_client.send(out.slice()), with_timeout(stock.next_message(), 10s)));
    CHECK(m.qpn() == other_server.verbs().num());
    all.push_back(std::move(m));
  }
}
