// Clients of rdma_cm that fall silent in all places for handshakes: a real one is served.
#include "cm_peers.hpp"

#include "connection/bootstrap.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <memory>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::cm_runtime;
using test::cm_speaker;

namespace {

constexpr unsigned permits = 3;
constexpr std::size_t flood = 8;
/// The time that a handshake has before it is dropped for a newcomer.
constexpr auto grace = 1s;

/// A listener with few places, where time passes when the test says so.
struct flooded {
  listener acceptor_with_few_permits() {
    return r.listen({}, {.handshakes_max = permits, .handshake_timeout = 10 * grace});
  }
  /// Lets one client after another come, each when those before it may be dropped.
  template <class Come>
  void come(Come one) {
    for (std::size_t n = 0; n < flood; ++n) {
      r.rt.run(one());
      clock.advance(grace);
    }
  }
  void check_that_a_real_client_is_served() {
    auto [client, server] =
        r.rt.run(when_all(r.rt.connect(acceptor.local_endpoint()), acceptor.accept()));
    test::check_that_messages_pass(r.rt, client, server);
    CHECK(acceptor.counters().dropped == flood + 1 - permits);
    CHECK(acceptor.counters().rejected == 0);
    CHECK(acceptor.counters().completed == 1);
  }

  manual_clock clock;
  cm_runtime r{test::by_hand(clock)};
  listener acceptor = acceptor_with_few_permits();
};

}  // namespace

TEST_CASE("a flood of rdma_cm's clients that say no hello keeps no real client out",
          "[connection][device][rdma_cm][floods]") {
  flooded f;
  std::vector<std::unique_ptr<cm_speaker>> silent;
  f.come([&] {
    silent.push_back(std::make_unique<cm_speaker>(f.r));
    return silent.back()->connect(f.r.address_of(f.acceptor));
  });
  f.check_that_a_real_client_is_served();
  const auto told = f.r.rt.run(as_result(bootstrap::read_hello(*silent.front()->channel)));
  REQUIRE(told.has_failure());
  CHECK_THAT(told.failure().to_string(),
             Catch::Contains("dropped for a newer client: handshakes_max is 3"));
}

TEST_CASE("a flood of rdma_cm's clients that never confirm keeps no real client out",
          "[connection][device][rdma_cm][floods]") {
  flooded f;
  std::vector<cm::id> silent;
  const auto start = handshake::encode(handshake::start{.nonce = handshake::random_nonce()});
  const auto knock = [&]() -> task<> {
    cm::id client{f.r.events()};
    co_await client.resolve(f.r.address_of(f.acceptor));
    // The kernel refuses a number that it has seen lately.
    co_await client.connect(0x900000 + std::uint32_t(silent.size()), start, cm::parameters{});
    silent.push_back(std::move(client));
  };
  f.come(knock);
  f.check_that_a_real_client_is_served();
  f.r.rt.run(
      test::until(f.r.rt.executor(), [&] { return silent.front().why_ended().has_value(); }));
  CHECK_FALSE(silent.back().why_ended());
}
