// A peer whose certificate does not fit is told one text, in a whole handshake.
#include "connection/handshake.hpp"
#include "scenario/proofs.hpp"
#include "security/raw_peer.hpp"
#include "support/connected_pair.hpp"
#include "support/until.hpp"

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <array>
#include <functional>
#include <string>
#include <thread>
#include <utility>

using namespace cordma;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;

namespace {

constexpr const char* told_to_all = "the peer says: your key or certificate does not fit";

/// Sends the start of a handshake and begins TLS, as a client with nothing but OpenSSL. Gives what
/// the listener says in the clear.
std::string heard_in_the_clear(const socket_address& where, authentication mode, SSL_CTX* context) {
  const unique_fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (::connect(fd.get(), where.data(), where.size_bytes()) != 0) return "nobody listens";
  const auto start = handshake::encode(
      handshake::start{.mode = std::uint8_t(mode), .nonce = handshake::random_nonce()});
  static_cast<void>(::send(fd.get(), start.data(), start.size(), MSG_NOSIGNAL));
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl{SSL_new(context), &SSL_free};
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  SSL_set_connect_state(ssl.get());
  std::string heard;
  for (std::array<char, 4096> bytes{};;) {
    SSL_do_handshake(ssl.get());
    while (BIO_pending(SSL_get_wbio(ssl.get())) > 0) {
      const int n = BIO_read(SSL_get_wbio(ssl.get()), bytes.data(), int(bytes.size()));
      static_cast<void>(::send(fd.get(), bytes.data(), std::size_t(n), MSG_NOSIGNAL));
    }
    const ssize_t n = ::recv(fd.get(), bytes.data(), bytes.size(), 0);
    if (n <= 0) break;
    heard.append(bytes.data(), std::size_t(n));
    BIO_write(SSL_get_rbio(ssl.get()), bytes.data(), int(n));
  }
  const std::size_t at = heard.find("CRMA");
  return at == heard.npos ? std::string{} : heard.substr(at);
}

/// A client that is wrong in one way, and what the listener says of it to its own side.
struct wrong_client {
  const char* says;
  std::function<void(test::raw_peer&)> make;
};

/// Lets a wrong client knock, checks what the listener finds, and gives what the client hears.
std::string refusal_of(runtime& rt, listener& acceptor, authentication mode,
                       const wrong_client& wrong) {
  INFO(wrong.says);
  const std::uint64_t before = acceptor.counters().rejected;
  test::raw_peer peer{tls_role::client};
  wrong.make(peer);
  const socket_address where = socket_address::loopback(acceptor.local_endpoint().port);
  std::string heard;
  std::thread client{[&] { heard = heard_in_the_clear(where, mode, peer.context()); }};
  rt.run(test::until(rt.executor(), [&] { return acceptor.counters().rejected != before; }));
  CHECK_THAT(acceptor.last_rejection()->to_string(), Contains(wrong.says));
  client.join();
  CHECK(heard.size() == handshake::frame_bytes);
  return heard;
}

}  // namespace

TEST_CASE("a client that does not fit hears the same bytes, whatever is wrong with it",
          "[scenario][device][N2]") {
  const test::authority ca;
  const test::authority foreign{"another authority"};
  const credentials good = ca.issue();
  const credentials key = test::key_named("db-1");
  runtime rt{test::on_test_device()};
  const auto with = [](const credentials::certificate_files& files) {
    return [files](test::raw_peer& peer) { peer.set_certificate(files); };
  };
  const auto expired = ca.files({.begins_s = -7200, .ends_s = -3600});
  const auto early = ca.files({.begins_s = 3600, .ends_s = 7200});
  const wrong_client wrong[] = {
      {"expired on", with(expired)},
      {"is valid from", with(early)},
      {"no authority in", with(foreign.files(test::certificate_terms{}))},
      {"the peer has no certificate", [](test::raw_peer&) {}},
      {"does not speak TLS 1.3",
       [](test::raw_peer& peer) { SSL_CTX_set_max_proto_version(peer.context(), TLS1_2_VERSION); }},
      {"cordma/1", [](test::raw_peer& peer) { peer.set_protocol("http/1.1"); }},
  };
  std::string first;
  {
    listener acceptor = rt.listen({}, {}, {.credentials = &good});
    for (const wrong_client& each : wrong) {
      const std::string heard = refusal_of(rt, acceptor, authentication::certificate, each);
      if (first.empty()) first = heard;
      CHECK(heard == first);
    }
    auto [client, server] = rt.run(
        when_all(rt.connect(acceptor.local_endpoint(), {.credentials = &good}), acceptor.accept()));
    CHECK(client.is_open());
  }
  listener acceptor = rt.listen({}, {}, {.credentials = &key});
  CHECK(refusal_of(rt, acceptor, authentication::psk, {"offers no key", [](test::raw_peer&) {}}) ==
        first);
  CHECK(first.find("your key or certificate does not fit") == 16);
}

TEST_CASE("whichever side refuses a certificate says why to itself, and the same to every peer",
          "[scenario][device][N2]") {
  const test::authority ca;
  const test::authority stranger{"another authority"};
  credentials::certificate_files files = stranger.files(test::certificate_terms{});
  files.authorities = ca.authority_path();
  const credentials good = ca.issue();
  const credentials foreign = credentials::certificates(files);
  const credentials expired = ca.issue({.begins_s = -7200, .ends_s = -3600});
  runtime rt{test::on_test_device()};
  for (const auto& [bad, says] :
       {std::pair{&expired, "expired on"}, std::pair{&foreign, "no authority in"}}) {
    for (const bool is_client : {true, false}) {
      INFO(says << (is_client ? ", the client's" : ", the listener's"));
      listener acceptor = rt.listen({}, {}, {.credentials = is_client ? &good : bad});
      const auto outcome = rt.run(as_result(
          rt.connect(acceptor.local_endpoint(), {.credentials = is_client ? bad : &good})));
      rt.run(test::until(rt.executor(), [&] { return acceptor.counters().rejected == 1; }));
      REQUIRE(outcome.has_failure());
      const failure& at_client = outcome.failure();
      const failure& at_listener = *acceptor.last_rejection();
      CHECK(at_client.code == make_error_code(errc::not_authenticated));
      CHECK(at_listener.code == make_error_code(errc::not_authenticated));
      const failure& judge = is_client ? at_listener : at_client;
      const failure& judged = is_client ? at_client : at_listener;
      CHECK_THAT(judge.to_string(), Contains(says));
      CHECK_THAT(judged.to_string(), EndsWith(told_to_all) && !Contains(says));
    }
  }
}
