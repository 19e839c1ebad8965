// Peers of rdma_cm that vanish in the middle of the handshake, as when a process ends. The other
// side's error names what did not come, nothing is left, and the next client is served.
#include "cm_peers.hpp"
#include "first_record.hpp"

#include "connection/bootstrap.hpp"
#include "security/tls_channel.hpp"
#include "support/leaks.hpp"
#include "support/some_hello.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/security/credentials.hpp>

#include <catch2/catch.hpp>

#include <optional>
#include <string>
#include <vector>

using namespace cordma;
using test::cm_runtime;
using test::cm_speaker;

namespace {

/// The last step of a peer.
enum class step { confirms, begins_tls, secures, says_hello, accepts };

struct vanishing {
  step last;
  bool has_key;
  /// The text of the other side's error. Chance decides whether it finds the end of a client that
  /// has just confirmed before its first read or in it.
  const char* left;
};

/// A listener and a client, with a key or without.
struct vanishing_rig {
  explicit vanishing_rig(bool has_key) {
    if (!has_key) return;
    options.credentials = &key;
    record = test::first_record(r.rt, key);
  }
  void check_that_the_next_is_served(listener& acceptor) {
    auto [client, server] =
        r.rt.run(when_all(r.rt.connect(acceptor.local_endpoint(), options), acceptor.accept()));
    test::check_that_messages_pass(r.rt, client, server);
  }
  std::string held() {
    const auto pairs = [] {
      return verbs_faults::live_objects()[std::size_t(verbs_faults::kind::qp)];
    };
    r.rt.run(test::until(r.rt.executor(), [&] { return pairs() == 0; }));
    return test::holdings();
  }
  cm_speaker speaker() {
    connection_options all = r.rt.connection_defaults();
    all.credentials = options.credentials;
    return cm_speaker{r, all};
  }
  /// TLS over the speaker's bytes, if there is a key.
  task<byte_channel*> secure(cm_speaker& of, std::optional<tls_channel>& tls, tls_role role) {
    if (options.credentials == nullptr) co_return of.channel.get();
    tls.emplace(key, *of.channel);
    co_await tls->shake_hands(role, "");
    co_return &*tls;
  }

  cm_runtime r;
  const credentials key = credentials::psk({"db-1", std::vector(32, std::byte{7})});
  connection_options options{};
  std::vector<std::byte> record;  ///< The first record of a client of TLS.
};

/// A client that goes on until its last step, and is not there any more.
task<> come_and_vanish(vanishing_rig& rig, socket_address to, step last) {
  cm_speaker client = rig.speaker();
  co_await client.connect(to);
  if (last == step::confirms) co_return;
  std::array<std::byte, 1> answer{};
  if (last == step::begins_tls) {
    co_await write_all(*client.channel, rig.record);
    co_return co_await read_exactly(*client.channel, answer);
  }
  std::optional<tls_channel> tls;
  byte_channel* const bytes = co_await rig.secure(client, tls, tls_role::client);
  const auto hello = handshake::encode(client.state->local_hello);
  co_await write_all(*bytes, hello);
  const handshake::received_hello theirs = co_await bootstrap::read_hello(*bytes);
  if (last == step::says_hello) co_return;
  co_await test::say_accepted(*bytes, theirs.nonce);
  // The listener's proof shows that it has the verdict.
  co_await client.state->agent->proved.wait();
}

/// A listener that goes on until its last step, and is not there any more.
task<> answer_and_vanish(vanishing_rig& rig, cm::listener& from, step last) {
  cm_speaker server = rig.speaker();
  co_await server.accept(from);
  if (last == step::confirms) co_return;
  if (last == step::begins_tls) {
    std::array<std::byte, 1> first{};
    co_await read_exactly(*server.channel, first);
    co_return;
  }
  std::optional<tls_channel> tls;
  byte_channel* const bytes = co_await rig.secure(server, tls, tls_role::server);
  if (last == step::secures) co_return;
  const handshake::received_hello theirs = co_await bootstrap::read_hello(*bytes);
  const auto hello = handshake::encode(server.state->local_hello);
  co_await write_all(*bytes, hello);
  co_await bootstrap::read_acceptance(*bytes, server.state->local_hello.nonce);
  if (last == step::says_hello) co_return;
  co_await test::say_accepted(*bytes, theirs.nonce);
}

}  // namespace

TEST_CASE("a client of rdma_cm that vanishes in the handshake is named, and leaves nothing",
          "[connection][device][rdma_cm][N2]") {
  const vanishing v = GENERATE(vanishing{step::confirms, false, "gone"},
                               vanishing{step::confirms, true, "the peer ended the connection"},
                               vanishing{step::begins_tls, true, "TLS"},
                               vanishing{step::says_hello, false, "its verdict"},
                               vanishing{step::says_hello, true, "its verdict"},
                               vanishing{step::accepts, true, "its proof"});
  vanishing_rig rig{v.has_key};
  listener acceptor = rig.r.listen(rig.options);
  rig.check_that_the_next_is_served(acceptor);
  const std::string before = rig.held();
  rig.r.rt.run(come_and_vanish(rig, rig.r.address_of(acceptor), v.last));
  rig.r.rt.run(test::until(rig.r.rt.executor(), [&] { return acceptor.counters().rejected == 1; }));
  CHECK(acceptor.last_rejection()->code == make_error_code(errc::disconnected));
  CHECK_THAT(acceptor.last_rejection()->to_string(), Catch::Contains(v.left));
  CHECK(test::settled_holdings(rig.r.rt.executor(), before) == before);
  rig.check_that_the_next_is_served(acceptor);
}

TEST_CASE("a listener of rdma_cm that vanishes in the handshake is named, and leaves nothing",
          "[connection][device][rdma_cm][N2]") {
  const vanishing v = GENERATE(
      vanishing{step::confirms, false, "its hello"}, vanishing{step::confirms, true, "TLS"},
      vanishing{step::begins_tls, true, "TLS"}, vanishing{step::secures, true, "its hello"},
      vanishing{step::says_hello, false, "its verdict"},
      vanishing{step::says_hello, true, "its verdict"},
      vanishing{step::accepts, true, "its proof"});
  vanishing_rig rig{v.has_key};
  listener acceptor = rig.r.listen(rig.options);
  rig.check_that_the_next_is_served(acceptor);
  cm::listener from{rig.r.events(), rig.r.address};
  const std::string before = rig.held();
  const auto to = cm_runtime::by_cm(from.local_address());
  const auto [made, answered] =
      rig.r.rt.run(when_all(as_result(rig.r.rt.connect(to, rig.options)),
                            as_result(answer_and_vanish(rig, from, v.last))));
  REQUIRE(made.has_failure());
  CHECK_FALSE(answered.has_failure());
  CHECK(made.failure().code == make_error_code(errc::disconnected));
  CHECK_THAT(made.failure().to_string(), Catch::Contains(v.left));
  CHECK(test::settled_holdings(rig.r.rt.executor(), before) == before);
  rig.check_that_the_next_is_served(acceptor);
}
