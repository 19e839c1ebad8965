#include "security/certificates.hpp"
#include "security/raw_peer.hpp"
#include "security/values.hpp"

#include <catch2/catch.hpp>

// Peers that are OpenSSL and no cordma.

using namespace cordma;
using namespace cordma::test;
using Catch::Matchers::Contains;

namespace {

const credentials::psk_key blue_key{"blue", secret_of(1)};

}  // namespace

TEST_CASE("a foreign peer with the right key or certificate, and protocol, is taken",
          "[security]") {
  executor unused;
  const authority ca;
  const credentials key = blue();
  const credentials certificate = ca.issue();
  for (const tls_role role : {tls_role::client, tls_role::server}) {
    raw_wire by_key{unused, key, role};
    by_key.raw.set_key(blue_key);
    by_key.shake_hands();
    CHECK(by_key.our_side.succeeded());
    CHECK(by_key.raw.has_succeeded);

    raw_wire by_certificate{unused, certificate, role};
    by_certificate.raw.set_certificate(ca.files(certificate_terms{}));
    by_certificate.shake_hands();
    CHECK(by_certificate.our_side.succeeded());
    CHECK(by_certificate.raw.has_succeeded);
  }
}

TEST_CASE("a peer that speaks no TLS 1.3 is refused by either role and kind", "[security]") {
  executor unused;
  const authority ca;
  const credentials key = blue();
  const credentials certificate = ca.issue();
  for (const tls_role role : {tls_role::client, tls_role::server}) {
    for (const credentials* ours : {&key, &certificate}) {
      raw_wire w{unused, *ours, role};
      w.raw.set_certificate(ca.files(certificate_terms{}));
      SSL_CTX_set_max_proto_version(w.raw.context(), TLS1_2_VERSION);
      w.shake_hands();
      CHECK_FALSE(w.raw.has_succeeded);
      if (role == tls_role::client) {
        // A server that finds no version in common sends an alert instead.
        CHECK(w.our_side.failed_with(errc::not_authenticated));
        CHECK_THAT(w.our_side.text(), Contains("protocol version"));
      } else {
        CHECK(w.our_side.failed_with(errc::incompatible_peer));
        CHECK_THAT(w.our_side.text(), Contains("does not speak TLS 1.3"));
      }
    }
  }
}

TEST_CASE("a peer that speaks another protocol within TLS, or none, is refused", "[security]") {
  executor unused;
  const authority ca;
  const credentials key = blue();
  for (const tls_role role : {tls_role::client, tls_role::server}) {
    for (const char* protocol : {"", "http/1.1", "cordma/2"}) {
      raw_wire w{unused, key, role};
      w.raw.set_key(blue_key);
      w.raw.set_protocol(protocol);
      w.shake_hands();
      CHECK_FALSE(w.our_side.succeeded());
      // OpenSSL itself refuses a server that chooses what was not offered.
      if (role == tls_role::client && *protocol != '\0') continue;
      CHECK(w.our_side.failed_with(errc::incompatible_peer));
      CHECK_THAT(w.our_side.text(), Contains("cordma/1"));
    }
  }
}

TEST_CASE("a client without a certificate is refused", "[security]") {
  executor unused;
  const authority ca;
  const credentials server = ca.issue();
  raw_wire w{unused, server, tls_role::server};
  w.shake_hands();
  CHECK(w.our_side.failed_with(errc::not_authenticated));
  CHECK_THAT(w.our_side.text(), Contains("the peer has no certificate"));
}

TEST_CASE("a certificate with a key that is too short is refused", "[security]") {
  executor unused;
  const authority ca;
  const credentials ours = ca.issue();
  for (const tls_role role : {tls_role::client, tls_role::server}) {
    for (const unsigned bits : {1024u, 2048u}) {
      raw_wire w{unused, ours, role};
      SSL_CTX_set_security_level(w.raw.context(), 0);
      w.raw.set_certificate(ca.files({.rsa_bits = bits}));
      w.shake_hands();
      CHECK(w.our_side.succeeded() == (bits == 2048));
      if (bits == 1024) CHECK_THAT(w.our_side.text(), Contains("too weak"));
    }
  }
}

TEST_CASE("a key without a key exchange is refused: who learns the key later reads nothing old",
          "[security]") {
  executor unused;
  // Without a group in common only a key alone is left. Raw peers agree on that.
  const auto allow = [](raw_peer& raw) {
    raw.set_key(blue_key);
    SSL_CTX_set_options(raw.context(), SSL_OP_ALLOW_NO_DHE_KEX);
    REQUIRE(SSL_CTX_set1_groups_list(raw.context(), "P-521") == 1);
  };
  {
    wire w{unused};
    raw_peer client{tls_role::client};
    raw_peer server{tls_role::server};
    allow(client);
    allow(server);
    REQUIRE(SSL_CTX_set1_groups_list(server.context(), "X25519") == 1);
    support::started first{w.loop.scheduler, client.run(w.client)};
    support::started second{w.loop.scheduler, server.run(w.server)};
    w.loop.settle();
    INFO(client.error << ' ' << server.error);
    REQUIRE(client.has_succeeded);
    REQUIRE(server.has_succeeded);
    first.request_stop();
    second.request_stop();
    w.loop.settle();
  }
  const credentials key = blue();
  for (const tls_role role : {tls_role::client, tls_role::server}) {
    raw_wire w{unused, key, role};
    allow(w.raw);
    w.shake_hands();
    CHECK_FALSE(w.our_side.succeeded());
    CHECK_FALSE(w.raw.has_succeeded);
  }
}

TEST_CASE("a listener gives no ticket, so nothing is ever resumed", "[security]") {
  executor unused;
  static int tickets;
  tickets = 0;
  const authority ca;
  const credentials server = ca.issue();
  raw_wire w{unused, server, tls_role::server};
  w.raw.set_certificate(ca.files(certificate_terms{}));
  SSL_CTX_set_session_cache_mode(w.raw.context(), SSL_SESS_CACHE_CLIENT);
  SSL_CTX_sess_set_new_cb(w.raw.context(), [](SSL* /*ssl*/, SSL_SESSION* /*session*/) {
    ++tickets;
    return 0;
  });
  w.shake_hands();
  REQUIRE(w.our_side.succeeded());
  CHECK(w.on_ours.try_write(bytes_of("data")) == 4);
  CHECK(tickets == 0);
}

TEST_CASE("an alert of a peer that refuses this side is shown, in the handshake and after it",
          "[security]") {
  executor unused;
  const authority ca;
  const authority foreign{"another authority"};
  const credentials ours = ca.issue();
  const auto verify = [&](raw_peer& raw) {
    raw.set_certificate(ca.files(certificate_terms{}));
    SSL_CTX_set_verify(raw.context(), SSL_VERIFY_PEER, nullptr);
    REQUIRE(SSL_CTX_load_verify_file(raw.context(), foreign.authority_path().c_str()) == 1);
  };
  raw_wire client{unused, ours, tls_role::server};
  verify(client.raw);
  client.shake_hands();
  CHECK(client.our_side.failed_with(errc::not_authenticated));
  CHECK_THAT(client.our_side.text(), Contains("refused this side") && Contains("unknown ca"));

  raw_wire server{unused, ours, tls_role::client};
  verify(server.raw);
  server.shake_hands();
  REQUIRE(server.our_side.succeeded());  // The server judges a client after its last words.
  std::array<std::byte, 1> byte{};
  CHECK_THROWS_WITH(server.on_ours.try_read(byte),
                    Contains("not authenticated") && Contains("unknown ca"));
  CHECK_THROWS_WITH(server.on_ours.try_write(byte), Contains("unknown ca"));
}

TEST_CASE("a peer that is not known yet sends 64 KiB at most", "[security]") {
  executor unused;
  const authority ca;
  const credentials server = ca.issue();
  std::string names = "DNS:a.example";
  for (int i = 0; i < 4000; ++i) names += ",DNS:" + std::to_string(1'000'000 + i) + ".example";
  raw_wire w{unused, server, tls_role::server};
  w.raw.set_certificate(ca.files({.names = names}));
  w.shake_hands();
  CHECK(w.our_side.failed_with(errc::bad_handshake));
  CHECK_THAT(w.our_side.text(), Contains("65536 bytes"));
  CHECK(w.our_end.read <= tls_channel::handshake_bytes_max + 8 * 1024);
}

TEST_CASE("data after a change of the peer's keys is read, and answered with new keys",
          "[security]") {
  executor unused;
  const credentials key = blue();
  raw_wire w{unused, key, tls_role::server};
  w.raw.set_key(blue_key);
  w.shake_hands();
  REQUIRE(w.our_side.succeeded());
  std::array<std::byte, 16> bytes{};
  for (int i = 0; i < 3; ++i) {
    w.raw.renew_keys();
    w.raw.send(w.raw_end, bytes_of("again"));
    CHECK(w.on_ours.try_read(bytes) == 5);
    CHECK(w.on_ours.try_write(bytes_of("yes")) == 3);
    CHECK(w.raw.receive(w.raw_end) == bytes_of("yes"));
  }
}

TEST_CASE("a peer that changes its keys for ever is read up to a limit, with data or without",
          "[security]") {
  executor unused;
  const credentials key = blue();
  for (const bool with_data : {false, true}) {
    raw_wire w{unused, key, tls_role::server};
    w.raw.set_key(blue_key);
    w.shake_hands();
    REQUIRE(w.our_side.succeeded());
    std::array<std::byte, 16> bytes{};
    for (unsigned i = 0; i < tls_engine::dataless_records_max; ++i) {
      w.raw.send_new_keys(w.raw_end);
      if (with_data) w.raw.send(w.raw_end, bytes_of("data"));
      CHECK(w.on_ours.try_read(bytes) ==
            (with_data ? std::optional<std::size_t>{4} : std::nullopt));
    }
    w.raw.send_new_keys(w.raw_end);
    CHECK_THROWS_WITH(w.on_ours.try_read(bytes), Contains("more than 64 records without data"));
    CHECK_THROWS_WITH(w.on_ours.try_read(bytes), Contains("more than 64 records without data"));
  }
}

TEST_CASE("the changes of keys that lie ready are not all read at once", "[security]") {
  executor unused;
  const credentials key = blue();
  raw_wire w{unused, key, tls_role::server};
  w.raw.set_key(blue_key);
  w.shake_hands();
  REQUIRE(w.our_side.succeeded());
  const std::size_t before = w.our_end.read;
  for (int i = 0; i < 5000; ++i) w.raw.send_new_keys(w.raw_end);
  std::array<std::byte, 16> bytes{};
  CHECK_THROWS_WITH(w.on_ours.try_read(bytes), Contains("broke the protocol"));
  CHECK(w.our_end.read - before <= 8 * 1024);
}
