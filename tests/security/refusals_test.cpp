#include "security/certificates.hpp"
#include "security/raw_peer.hpp"
#include "security/values.hpp"
#include "security/wire.hpp"

#include <catch2/catch.hpp>

#include <fstream>

using namespace cordma;
using namespace cordma::test;
using Catch::Matchers::Contains;

namespace {

/// The client has not shaken hands, or learns of its end as soon as it reads.
bool is_refused(tls_wire& w) {
  std::array<std::byte, 1> byte{};
  if (!w.client_side.succeeded()) return true;
  CHECK_THROWS_AS(w.on_client.try_read(byte), error);
  return true;
}

}  // namespace

TEST_CASE("a listener with two keys takes both, and says which one it was", "[security]") {
  executor unused;
  const credentials server = credentials::psk({"blue", secret_of(1)}, {"green", secret_of(2)});
  for (const auto& [id, filled] : {std::pair{"blue", 1}, std::pair{"green", 2}}) {
    const credentials client = credentials::psk({id, secret_of(static_cast<unsigned char>(filled))},
                                                {"old", secret_of(9)});
    tls_wire w{unused, client, server};
    w.shake_hands();
    REQUIRE(w.both_succeeded());
    CHECK(w.on_server.peer().name == id);
    CHECK(w.on_client.peer().name == id);
  }
}

TEST_CASE("a wrong secret is refused, and the listener names its key", "[security]") {
  executor unused;
  const credentials client = blue(1);
  const credentials server = blue(2);
  tls_wire w{unused, client, server};
  w.shake_hands();
  CHECK(w.server_side.failed_with(errc::not_authenticated));
  CHECK_THAT(w.server_side.text(), Contains("another secret for the key 'blue'"));
  CHECK(w.client_side.failed_with(errc::disconnected));
}

TEST_CASE("an unknown key is refused as a wrong one is: the client sees no difference",
          "[security]") {
  executor unused;
  const credentials red = credentials::psk({"red!", secret_of(1)});
  const credentials wrong = blue(7);
  const credentials server = credentials::psk({"blue", secret_of(1)}, {"green", secret_of(2)});
  tls_wire unknown{unused, red, server};
  tls_wire other{unused, wrong, server};
  unknown.shake_hands();
  other.shake_hands();
  CHECK(unknown.server_side.failed_with(errc::not_authenticated));
  CHECK_THAT(unknown.server_side.text(),
             Contains("'red!' is none of this side's, which are 'blue' and 'green'"));
  CHECK(unknown.client_side.text() == other.client_side.text());
  CHECK(unknown.server.sent.empty());
  CHECK(other.server.sent.empty());
  CHECK(unknown.client.sent.size() == other.client.sent.size());
}

TEST_CASE("a key's id that does not print is shown without harm", "[security]") {
  executor unused;
  const credentials server = blue();
  raw_wire w{unused, server, tls_role::server};
  w.raw.set_key({"\x1b[31m" + std::string(200, 'x'), secret_of(1)});
  w.shake_hands();
  CHECK(w.our_side.failed_with(errc::not_authenticated));
  CHECK_THAT(w.our_side.text(), Contains("'?[31mxxx") && Contains("...'"));
}

TEST_CASE("keys on one side and certificates on the other are refused by the side that sees it",
          "[security]") {
  executor unused;
  const authority ca;
  const credentials certificate = ca.issue();
  const credentials key = blue();
  tls_wire key_at_listener{unused, certificate, key};
  key_at_listener.shake_hands();
  CHECK(key_at_listener.server_side.failed_with(errc::not_authenticated));
  CHECK_THAT(key_at_listener.server_side.text(), Contains("offers no key"));
  CHECK(is_refused(key_at_listener));

  tls_wire certificate_at_listener{unused, key, certificate};
  certificate_at_listener.shake_hands();
  CHECK(certificate_at_listener.client_side.failed_with(errc::not_authenticated));
  CHECK_THAT(certificate_at_listener.client_side.text(),
             Contains("answers with a certificate and does not use the key"));
  CHECK(certificate_at_listener.server_side.failed_with(errc::disconnected));
}

TEST_CASE("a certificate that is not valid now is refused by either side", "[security]") {
  executor unused;
  const authority ca;
  const credentials good = ca.issue();
  const credentials expired = ca.issue({.begins_s = -7200, .ends_s = -3600});
  const credentials early = ca.issue({.begins_s = 3600, .ends_s = 7200});
  for (const auto& [bad, says] :
       {std::pair{&expired, "expired on"}, std::pair{&early, "is valid from"}}) {
    tls_wire at_server{unused, good, *bad};
    at_server.shake_hands();
    CHECK(at_server.client_side.failed_with(errc::not_authenticated));
    CHECK_THAT(at_server.client_side.text(),
               Contains(says) && Contains("a cordma test") && Contains("GMT") && Contains("clock"));
    CHECK(at_server.server_side.failed_with(errc::disconnected));

    tls_wire at_client{unused, *bad, good};
    at_client.shake_hands();
    CHECK(at_client.server_side.failed_with(errc::not_authenticated));
    CHECK_THAT(at_client.server_side.text(), Contains(says));
    CHECK(is_refused(at_client));
  }
}

TEST_CASE("a certificate of another authority is refused by either side, whatever its name",
          "[security]") {
  executor unused;
  const authority ca;
  const credentials good = ca.issue();
  for (const char* name : {"an authority", "another authority"}) {
    const authority foreign{name};
    credentials::certificate_files files =
        foreign.files(certificate_terms{.common_name = "stranger"});
    files.authorities = ca.authority_path();
    const credentials stranger = credentials::certificates(files);
    for (const bool is_client : {true, false}) {
      tls_wire w{unused, is_client ? stranger : good, is_client ? good : stranger};
      w.shake_hands();
      const side_outcome& judge = is_client ? w.server_side : w.client_side;
      CHECK(judge.failed_with(errc::not_authenticated));
      CHECK_THAT(judge.text(),
                 Contains("no authority in") && Contains("ca.pem") && Contains("stranger"));
      CHECK(is_refused(w));
    }
  }
}

TEST_CASE("a certificate that signed itself is refused", "[security]") {
  executor unused;
  const authority ca;
  const credentials good = ca.issue();
  const authority other;
  credentials::certificate_files files = other.files(other.own());
  files.authorities = ca.authority_path();
  const credentials self = credentials::certificates(files);
  tls_wire w{unused, self, good};
  w.shake_hands();
  CHECK(w.server_side.failed_with(errc::not_authenticated));
  CHECK_THAT(w.server_side.text(), Contains("self"));
}

TEST_CASE("a client takes only the host that it asked for, by name or by address", "[security]") {
  executor unused;
  const authority ca;
  const credentials any = ca.issue();
  const credentials server =
      ca.issue({.common_name = "common.example",
                .names = "DNS:server.example,DNS:*.wild.example,IP:127.0.0.1,IP:fd00::1"});
  for (const char* host : {"server.example", "SERVER.example", "server.example.", "a.wild.example",
                           "127.0.0.1", "fd00::1", "fd00::1%eth0"}) {
    INFO(host);
    tls_wire w{unused, any, server};
    w.shake_hands(host);
    CHECK(w.both_succeeded());
  }
  for (const char* host : {"other.example", "127.0.0.2", "fd00::2", "common.example",
                           "a.b.wild.example", "wild.example", "server.example.org"}) {
    INFO(host);
    tls_wire w{unused, any, server};
    w.shake_hands(host);
    CHECK(w.client_side.failed_with(errc::not_authenticated));
    CHECK_THAT(w.client_side.text(), Contains("DNS:server.example") && Contains(host) &&
                                         Contains("certificate_files::peer_name"));
    CHECK_FALSE(w.server_side.succeeded());
  }
}

TEST_CASE("a host's name counts as an alternative name only, and whole labels of it are wild",
          "[security]") {
  executor unused;
  const authority ca;
  const credentials any = ca.issue();
  const std::pair<const char*, const char*> named[] = {
      {"", "common.example"}, {"DNS:w*.part.example", "wild.part.example"}, {"DNS:*", "example"}};
  for (const auto& [names, host] : named) {
    const credentials server = ca.issue({.common_name = "common.example", .names = names});
    tls_wire w{unused, any, server};
    w.shake_hands(host);
    CHECK(w.client_side.failed_with(errc::not_authenticated));
  }
}

TEST_CASE("a client with certificates and no name to ask for, or a domain's, is told so",
          "[security]") {
  executor unused;
  const authority ca;
  const credentials any = ca.issue();
  for (const auto& [host, says] :
       {std::pair{"", "certificate_files::peer_name"}, std::pair{".example", "'.example' is no"}}) {
    tls_wire w{unused, any, any};
    w.shake_hands(host);
    REQUIRE(w.client_side.ended);
    CHECK_THAT(w.client_side.text(), Contains(says));
    CHECK(w.client.sent.empty());
  }
}

TEST_CASE("the name that certificate_files give goes before the host's, on both sides",
          "[security]") {
  executor unused;
  const authority ca;
  credentials::certificate_files files = ca.files({.names = "DNS:alice"});
  files.peer_name = "bob";
  const credentials alice = credentials::certificates(files);
  files = ca.files({.names = "DNS:bob"});
  files.peer_name = "alice";
  const credentials bob = credentials::certificates(files);
  tls_wire w{unused, alice, bob};
  w.shake_hands("10.0.0.1");
  CHECK(w.both_succeeded());
  CHECK(w.on_client.peer().name == "bob");
  CHECK(w.on_server.peer().name == "alice");

  const credentials carol = ca.issue({.names = "DNS:carol"});
  tls_wire wrong{unused, carol, bob};
  wrong.shake_hands("bob");
  CHECK(wrong.server_side.failed_with(errc::not_authenticated));
  CHECK_THAT(wrong.server_side.text(), Contains("DNS:carol") && Contains("'alice'"));
}

TEST_CASE("a listener names a peer by the first name that its certificate has", "[security]") {
  executor unused;
  const authority ca;
  const credentials server = ca.issue();
  const std::pair<const char*, const char*> named[] = {{"DNS:a.example,DNS:b.example", "a.example"},
                                                       {"URI:spiffe://x/y,DNS:b", "spiffe://x/y"},
                                                       {"email:me@x", "me@x"},
                                                       {"IP:10.1.2.3", "10.1.2.3"},
                                                       {"IP:fd00::7", "fd00::7"},
                                                       {"", "common"}};
  for (const auto& [names, expected] : named) {
    const credentials client = ca.issue({.common_name = "common", .names = names});
    tls_wire w{unused, client, server};
    w.shake_hands();
    REQUIRE(w.both_succeeded());
    CHECK(w.on_server.peer().name == expected);
  }
}

TEST_CASE("a chain of issuers leads to the authority, if the file has it", "[security]") {
  executor unused;
  const authority ca;
  const credentials good = ca.issue();
  const certified issuer = ca.sign({.common_name = "issuer", .names = {}, .is_authority = true});
  const credentials::certificate_files files = ca.files(ca.sign({}, &issuer));
  {
    const credentials without = credentials::certificates(files);
    tls_wire w{unused, good, without};
    w.shake_hands();
    CHECK_THAT(w.client_side.text(), Contains("no authority in"));
  }
  const std::string issuer_path = (ca.folder().path / "issuer.pem").string();
  write_pem(issuer_path, issuer.certificate.get());
  std::ofstream{files.chain, std::ios::app} << std::ifstream{issuer_path}.rdbuf();
  const credentials with = credentials::certificates(files);
  tls_wire w{unused, good, with};
  w.shake_hands();
  CHECK(w.both_succeeded());
}

TEST_CASE("a certificate that is only for clients is no server's", "[security]") {
  executor unused;
  const authority ca;
  const credentials any = ca.issue();
  const credentials for_clients = ca.issue({.usage = "clientAuth"});
  tls_wire w{unused, any, for_clients};
  w.shake_hands();
  CHECK(w.client_side.failed_with(errc::not_authenticated));
  CHECK_THAT(w.client_side.text(), Contains("purpose"));
  tls_wire reverse{unused, for_clients, any};
  reverse.shake_hands();
  CHECK(reverse.both_succeeded());
}
