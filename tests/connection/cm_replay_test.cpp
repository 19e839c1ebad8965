// Clients of rdma_cm that say again what another client has said in a handshake that was good.
#include "cm_replay.hpp"

#include "impostor.hpp"
#include "support/held.hpp"
#include "support/leaks.hpp"

#include <catch2/catch.hpp>

#include <string>

using namespace cordma;
using test::cm_recording;
using test::cm_replay;
using test::cm_replay_outcome;
using test::cm_replayer;
using test::cm_runtime;

namespace {

/// A listener that lends memory, with a key or without, and what one of its clients has said.
struct replay_rig {
  explicit replay_rig(bool has_key) : options{test::lender_with(key)} {
    if (!has_key) options.credentials = nullptr;
    acceptor.emplace(r.listen(options));
    said = r.rt.run(test::recorded(r, *acceptor, options));
    before = held();
  }
  cm_replay_outcome outcome(cm_replay how) {
    return r.rt.run(test::replayed(r, *acceptor, said, how));
  }
  std::string held() {
    const auto pairs = [] {
      return verbs_faults::live_objects()[std::size_t(verbs_faults::kind::qp)];
    };
    r.rt.run(test::until(r.rt.executor(), [&] { return pairs() == 0; }));
    return test::holdings();
  }
  void check_that_nothing_is_left() {
    CHECK(test::settled_holdings(r.rt.executor(), before) == before);
    CHECK(test::held_by(r.rt) == test::nothing);
    CHECK(acceptor->counters().completed == 1);
    auto [client, server] =
        r.rt.run(when_all(r.rt.connect(acceptor->local_endpoint(), options), acceptor->accept()));
    test::check_that_messages_pass(r.rt, client, server);
  }

  cm_runtime r;
  const credentials key = test::some_key();
  connection_options options;
  std::optional<listener> acceptor;
  cm_recording said;
  std::string before;
};

}  // namespace

TEST_CASE("a whole handshake by rdma_cm that is said again is refused by name, each time",
          "[connection][device][rdma_cm][N2]") {
  const bool has_key = GENERATE(false, true);
  replay_rig rig{has_key};
  for (int n = 0; n < 3; ++n) {
    const cm_replay_outcome got = rig.outcome({.frames = rig.said.frames.size()});
    CHECK(got.why.code == make_error_code(errc::bad_handshake));
    CHECK_THAT(got.why.to_string(), Catch::Contains(has_key ? "was changed on its way"
                                                            : "the hello's agent is not the one"));
    CHECK(got.told.code ==
          make_error_code(has_key ? errc::not_authenticated : errc::bad_handshake));
    CHECK_FALSE(got.has_memory);
  }
  rig.check_that_nothing_is_left();
}

TEST_CASE("the begin of a handshake by rdma_cm that is said again gives no connection",
          "[connection][device][rdma_cm][N2]") {
  replay_rig rig{GENERATE(false, true)};
  for (std::size_t n = 0; n <= rig.said.frames.size(); ++n) {
    CAPTURE(n);
    const bool is_known = n >= rig.said.refusable();
    const cm_replay_outcome got = rig.outcome({.frames = n});
    CHECK(got.why.code == make_error_code(is_known ? errc::bad_handshake : errc::disconnected));
    CHECK((got.told.code != std::error_code{}) == is_known);
    CHECK_FALSE(got.has_memory);
  }
  rig.check_that_nothing_is_left();
}

TEST_CASE("a recorded handshake by rdma_cm that comes all at once is refused by name, at once",
          "[connection][device][rdma_cm][N2]") {
  replay_rig rig{GENERATE(false, true)};
  const cm_replay_outcome got = rig.outcome(
      {.frames = rig.said.frames.size(), .at_once = true, .has_own_qpn = !rig.said.has_tls()});
  // The frames count words of the listener's, which it may have said by then, or not.
  const bool is_named = got.why.code == make_error_code(errc::bad_handshake) ||
                        got.why.code == make_error_code(errc::bad_frame);
  INFO(got.why.to_string());
  CHECK(is_named);
  CHECK_FALSE(got.has_memory);
  rig.check_that_nothing_is_left();
}

TEST_CASE("a recorded handshake by rdma_cm that names the right queue pair lacks only the nonce",
          "[connection][device][rdma_cm][N2]") {
  replay_rig rig{false};
  const std::size_t all = rig.said.frames.size();
  const cm_replay_outcome got = rig.outcome({.frames = all, .has_own_qpn = true});
  CHECK(got.why.code == make_error_code(errc::bad_handshake));
  CHECK_THAT(got.why.to_string(), Catch::Contains("it is of another handshake"));
  CHECK_THAT(got.told.to_string(), Catch::Contains("it is of another handshake"));
  CHECK_FALSE(got.has_memory);
  rig.check_that_nothing_is_left();

  const std::size_t hello_frames = rig.said.refusable();
  cm_replayer client{rig.r, rig.said};
  client.name_own_queue_pair();
  const auto say_the_listeners_nonce = [&]() -> task<> {
    co_await client.connect(rig.r.address_of(*rig.acceptor));
    co_await client.say(hello_frames);
    co_await client.heard(hello_frames);
    const std::vector<std::byte> hello = client.heard_bytes();
    client.said.put(test::verdict_nonce_at,
                    std::span{hello}.subspan(test::hello_nonce_at, sizeof(handshake::nonce)));
    co_await client.say(all - 1);
  };
  auto [said, made] = rig.r.rt.run(when_all(say_the_listeners_nonce(), rig.acceptor->accept()));
  CHECK(made.is_open());
}
