// A peer that must prove who it is before its agent gets anything.
#include "support/device.hpp"
#include "support/held.hpp"
#include "support/hostile_peer.hpp"
#include "support/sizes.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>

using namespace cordma;
using namespace std::chrono_literals;
using agent_protocol::frame;
using agent_protocol::kind;
using test::held_by;
using test::nothing;
using verbs::access;

namespace {

agent_options mib_lender() {
  agent_options o;
  o.lending.bytes_max = test::mib;
  o.lending.isolation_min = test::is_rxe() ? isolation::exact_registered : isolation::exact;
  return o;
}

constexpr frame a_request{
    .kind = kind::request, .tag = 1, .length = 64, .access = access::remote_read, .duration = 10s};
constexpr frame an_offer{.kind = kind::offer,
                         .lease = 7,
                         .length = 64,
                         .address = 4096,
                         .access = access::remote_read,
                         .duration = 10s,
                         .isolation = std::uint8_t(isolation::exact)};

/// A victim that lends, and its peer, which must say `proof` first if that is set.
struct gatekeeper {
  explicit gatekeeper(const std::optional<agent_protocol::payload>& proof) {
    v.expected = proof;
    peer.emplace(world, v);
  }
  ~gatekeeper() {
    if (!v.is_cut_off()) v.cut_off(errc::closed);
    for (int n = 0; n < 3; ++n) world.iterate();
  }
  void wait_for(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + 5s;
    while (!done()) {
      world.iterate();
      peer->listen();
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error{"never came"};
    }
  }
  /// Checks that a frame of the peer's has broken the connection, and that the peer got nothing.
  void check_broken(const std::string& says) {
    wait_for([&] { return v.is_cut_off(); });
    world.iterate();
    peer->listen();
    CHECK(v.reason() == make_error_code(errc::bad_frame));
    REQUIRE(v.self().bad_frame);
    CHECK_THAT(v.self().bad_frame->to_string(), Catch::Contains(says));
    CHECK(v.self().proved.is_set());  // Waiters for the proof learn of the end.
    CHECK(peer->heard.empty());
    CHECK(held_by(v.self(), world.memory) == at_first);
    CHECK_FALSE(v.self().peer_note);
  }

  test::agent_world world;
  test::victim v{world, mib_lender()};
  std::optional<test::hostile_peer> peer;
  test::held at_first = held_by(v.self(), world.memory);
};

agent_protocol::payload some_proof() {
  agent_protocol::payload all;
  for (std::size_t n = 0; n < all.size(); ++n) all[n] = std::byte(100 + n);
  return all;
}

}  // namespace

TEST_CASE("a frame that comes before the proof breaks the connection, whatever it is",
          "[agent][device][R4]") {
  const frame early = GENERATE(
      values<frame>({a_request, an_offer, frame{.kind = kind::accept, .tag = 1, .lease = 7},
                     frame{.kind = kind::renew, .tag = 1, .lease = 7, .duration = 1s},
                     frame{.kind = kind::give_back, .lease = 7},
                     frame{.kind = kind::hand_over, .tag = 1, .lease = 7},
                     frame{.kind = kind::revoke, .lease = 7},
                     frame{.kind = kind::note, .tag = 1, .lease = 2, .length = 3}}));
  gatekeeper k{some_proof()};
  k.peer->say(early);
  k.peer->say(agent_protocol::proof_frame(some_proof()));  // Too late.
  k.check_broken("a frame before the peer has proved who it is");
}

TEST_CASE("an answer that comes before the proof answers nothing", "[agent][device][R4]") {
  const frame early = GENERATE(frame{.kind = kind::refused, .tag = 1, .status = 11},
                               frame{.kind = kind::renewed, .tag = 1, .duration = 1s},
                               frame{.kind = kind::handed_over, .tag = 1});
  gatekeeper k{some_proof()};
  k.peer->say(early);
  k.check_broken("answers what was not asked");
}

TEST_CASE("a proof that differs in one bit breaks the connection", "[agent][device][R4]") {
  const std::size_t index = GENERATE(0u, 15u, 31u);
  gatekeeper k{some_proof()};
  agent_protocol::payload wrong = some_proof();
  wrong[index] ^= std::byte{1};
  k.peer->say(agent_protocol::proof_frame(wrong));
  k.peer->say(a_request);
  k.check_broken("the wrong proof");
}

TEST_CASE("a proof that nobody expects breaks the connection, as does a second one",
          "[agent][device][R4]") {
  const bool is_second = GENERATE(true, false);
  gatekeeper k{is_second ? std::optional{some_proof()} : std::nullopt};
  if (is_second) k.peer->say(agent_protocol::proof_frame(some_proof()));
  k.peer->say(agent_protocol::proof_frame(some_proof()));
  k.check_broken("a proof that nobody expects");
}

TEST_CASE("a peer that has said its proof is served as any other", "[agent][device][R4]") {
  gatekeeper k{some_proof()};
  CHECK_FALSE(k.v.self().proved.is_set());
  k.peer->say(agent_protocol::proof_frame(some_proof()));
  k.wait_for([&] { return k.v.self().proved.is_set(); });
  k.peer->say(a_request);
  k.wait_for([&] { return !k.peer->heard.empty(); });
  CHECK(k.peer->heard.front().kind == kind::granted);
  CHECK_FALSE(k.v.is_cut_off());
}
