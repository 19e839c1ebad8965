#include "security/attack.hpp"
#include "security/certificates.hpp"
#include "security/values.hpp"
#include "security/wire.hpp"

#include <catch2/catch.hpp>
#include <support/soak.hpp>

#include <random>

// An attacker on the path, who changes, cuts, holds, repeats and makes up bytes.

using namespace cordma;
using namespace cordma::test;
using Catch::Matchers::Contains;

namespace {

using bytes = std::vector<std::byte>;

/// Two sides that should know each other, and an attacker between them.
struct besieged {
  besieged(executor& unused, const credentials& kind) : w{unused, kind, kind} {}

  wire_end& attacked(const attempt& a) { return a.on_client ? w.client : w.server; }

  /// Returns true if the attack came about.
  bool run(const attempt& a) {
    attacker between{a};
    attacked(a).tamper = [&](std::size_t at, bytes& changed) {
      between.change(at, changed);
      if (between.has_cut()) attacked(a).end_writing();
    };
    w.shake_hands();
    return between.is_done();
  }

  tls_wire w;
};

/// The least version in the header of a record that is not encrypted yet: nobody reads it.
bool is_ignored(const attempt& a) { return a.kind == attack::flip && a.at == 2; }

/// Returns true if reading fails with a reason, or waits; nobody ever sent data.
bool reads_nothing(tls_channel& side) {
  std::array<std::byte, 8> data{};
  try {
    return !side.try_read(data).has_value();
  } catch (const error& e) {
    return !e.failure().detail.empty();
  }
}

bool fails_to_read(tls_channel& side) {
  std::array<std::byte, 8> data{};
  try {
    static_cast<void>(side.try_read(data));
    return false;
  } catch (const error&) {
    return true;
  }
}

void check(executor& unused, const credentials& kind, const attempt& a) {
  besieged s{unused, kind};
  const bool came_about = s.run(a);
  const bool is_good = s.w.both_succeeded();
  bool is_right = came_about && !is_ignored(a) ? !is_good : is_good;
  // The last bytes of the handshake, once more, come after it.
  if (is_good && a.kind == attack::repeat) {
    is_right = fails_to_read(a.on_client ? s.w.on_server : s.w.on_client);
  }
  if (!is_right || !reads_nothing(s.w.on_client) || !reads_nothing(s.w.on_server)) {
    FAIL_CHECK(a << ": " << s.w.client_side.text() << "; " << s.w.server_side.text());
  }
}

/// How many bytes each side sends in a handshake, about.
std::pair<std::size_t, std::size_t> sizes_of(executor& unused, const credentials& kind) {
  tls_wire w{unused, kind, kind};
  w.shake_hands();
  REQUIRE(w.both_succeeded());
  return {w.client.sent.size(), w.server.sent.size()};
}

void flip_every(executor& unused, const credentials& kind, std::size_t step) {
  const auto [of_client, of_server] = sizes_of(unused, kind);
  unsigned bit = 0;
  for (const bool on_client : {true, false}) {
    for (std::size_t at = 0; at < (on_client ? of_client : of_server); at += step) {
      check(unused, kind,
            {.kind = attack::flip, .on_client = on_client, .at = at, .value = 1u << (bit++ % 8)});
    }
  }
  CHECK(bit > 0);
}

}  // namespace

TEST_CASE("a bit that is changed in any byte of a handshake by a key fails it", "[security]") {
  executor unused;
  flip_every(unused, blue(), 1);
}

TEST_CASE("a bit that is changed in bytes of a handshake by certificates fails it", "[security]") {
  executor unused;
  const authority ca;
  flip_every(unused, ca.issue(), 7);
}

TEST_CASE("a handshake that is cut, held, or has bytes too few or too many, fails", "[security]") {
  executor unused;
  const credentials key = blue();
  const auto [of_client, of_server] = sizes_of(unused, key);
  for (const attack kind :
       {attack::cut, attack::hold, attack::drop, attack::repeat, attack::insert}) {
    for (const bool on_client : {true, false}) {
      for (std::size_t at = 0; at < (on_client ? of_client : of_server); at += 13) {
        check(unused, key, {.kind = kind, .on_client = on_client, .at = at, .value = 5});
      }
    }
  }
  CHECK(of_client + of_server > 400);
}

TEST_CASE("what one connection's side sent opens no other connection", "[security]") {
  executor unused;
  const authority ca;
  const credentials key = blue();
  const credentials certificate = ca.issue();
  for (const credentials* kind : {&key, &certificate}) {
    tls_wire first{unused, *kind, *kind};
    first.shake_hands();
    REQUIRE(first.both_succeeded());
    for (const bool to_server : {true, false}) {
      tls_wire w{unused, *kind, *kind};
      tls_channel& victim = to_server ? w.on_server : w.on_client;
      wire_end& attacker = to_server ? w.client : w.server;
      attacker.deliver(to_server ? first.client.sent : first.server.sent);
      side_outcome outcome;
      support::started side{w.loop.scheduler,
                            one_side(victim, to_server ? tls_role::server : tls_role::client,
                                     "server.example", outcome)};
      w.loop.settle();
      REQUIRE(outcome.ended);
      CHECK(outcome.failed_with(errc::bad_handshake));
    }
  }
}

TEST_CASE("data that is repeated, changed or left out on the way is an error", "[security]") {
  executor unused;
  const credentials key = blue();
  for (const int what : {0, 1, 2}) {
    tls_wire w{unused, key, key};
    w.shake_hands();
    REQUIRE(w.both_succeeded());
    const std::size_t before = w.server.inbox.size();
    CHECK(w.on_client.try_write(bytes_of("one")) == 3);
    const bytes record{w.server.inbox.begin() + std::ptrdiff_t(before), w.server.inbox.end()};
    std::array<std::byte, 8> data{};
    if (what == 0) {
      CHECK(w.on_server.try_read(data) == 3);
      w.client.deliver(record);
    } else if (what == 1) {
      w.server.inbox.back() ^= std::byte{1};
    } else {
      w.server.inbox.resize(before);
      CHECK(w.on_client.try_write(bytes_of("two")) == 3);
    }
    CHECK_THROWS_WITH(w.on_server.try_read(data), Contains("broke the protocol"));
    CHECK_THROWS_WITH(w.on_server.try_read(data), Contains("broke the protocol"));
  }
}

TEST_CASE("attacks on handshakes fail them, and the next one succeeds", "[.soak-tls][security]") {
  executor unused;
  const authority ca;
  const credentials key = blue();
  const credentials certificate = ca.issue();
  std::mt19937_64 random{soak::seed()};
  for (std::uint64_t left = soak::count(10'000); left > 0; --left) {
    const credentials& kind = left % 2 == 0 ? key : certificate;
    const auto [of_client, of_server] = sizes_of(unused, kind);
    check(unused, kind, some_attempt(random, of_client, of_server));
  }
}
