// The work that an unknown client can cause a listener is counted, for each kind of client.
#include "security/certificates.hpp"
#include "security/raw_peer.hpp"
#include "security/values.hpp"

#include <catch2/catch.hpp>

#include <dlfcn.h>

#include <fstream>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace {

/// The dear steps of handshakes.
struct work {
  unsigned agreements = 0;     // Key agreements with the peer.
  unsigned signatures = 0;     // Made by this side.
  unsigned verifications = 0;  // Checks of signatures, those of certificates included.
  unsigned chains = 0;         // Verified, or made of this side's certificates.
  unsigned steps = 0;          // Times that OpenSSL went on.

  bool operator==(const work&) const = default;
  friend std::ostream& operator<<(std::ostream& to, const work& w) {
    return to << w.agreements << " agreements, " << w.signatures << " signatures, "
              << w.verifications << " verifications, " << w.chains << " chains, " << w.steps
              << " steps";
  }
};

// Other tests shake hands on many threads.
thread_local work of_listeners;
thread_local work of_clients;
thread_local work* now = &of_clients;  // The side that takes the present step.

template <class Function>
Function* openssls(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// Called in place of OpenSSL's, by cordma, by raw peers and by OpenSSL itself.
extern "C" {
int EVP_PKEY_derive(EVP_PKEY_CTX* context, unsigned char* key, std::size_t* size) {
  now->agreements += key != nullptr ? 1 : 0;
  return openssls<decltype(EVP_PKEY_derive)>("EVP_PKEY_derive")(context, key, size);
}
int EVP_DigestSign(EVP_MD_CTX* context, unsigned char* made, std::size_t* size,
                   const unsigned char* from, std::size_t from_size) {
  now->signatures += made != nullptr ? 1 : 0;
  return openssls<decltype(EVP_DigestSign)>("EVP_DigestSign")(context, made, size, from, from_size);
}
int EVP_DigestVerify(EVP_MD_CTX* context, const unsigned char* made, std::size_t size,
                     const unsigned char* from, std::size_t from_size) {
  ++now->verifications;
  return openssls<decltype(EVP_DigestVerify)>("EVP_DigestVerify")(context, made, size, from,
                                                                  from_size);
}
int X509_verify_cert(X509_STORE_CTX* chain) {
  ++now->chains;
  return openssls<decltype(X509_verify_cert)>("X509_verify_cert")(chain);
}
int SSL_do_handshake(SSL* ssl) {
  now = SSL_is_server(ssl) == 1 ? &of_listeners : &of_clients;
  ++now->steps;
  const int outcome = openssls<decltype(SSL_do_handshake)>("SSL_do_handshake")(ssl);
  now = &of_clients;
  return outcome;
}
}

using namespace cordma;
using namespace cordma::test;
using Catch::Matchers::Contains;

namespace {

/// The work of a listener until it took or refused a client.
struct handled {
  work done;
  std::size_t bytes;
  std::size_t reads;
  std::string text;

  /// The listener was asked for this and no more, however it ended.
  void check_within(const work& most) const {
    INFO(done << ", " << bytes << " bytes in " << reads << " reads: " << text);
    CHECK(done.agreements <= most.agreements);
    CHECK(done.signatures <= most.signatures);
    CHECK(done.verifications <= most.verifications);
    CHECK(done.chains <= most.chains);
    CHECK(done.steps <= reads + 1);
    CHECK(bytes <= tls_channel::handshake_bytes_max + 8 * 1024);
  }
};

handled handled_by(const raw_wire& w) {
  return {of_listeners, w.our_end.read, w.our_end.reads, w.our_side.text()};
}

/// A client that is OpenSSL, as `make` makes it.
handled shake_hands(const credentials& listener, const std::function<void(raw_peer&)>& make) {
  executor unused;
  raw_wire w{unused, listener, tls_role::server};
  make(w.raw);
  of_listeners = {};
  w.shake_hands();
  return handled_by(w);
}

/// A client that says these bytes, of which the listener reads so many at once.
handled say(const credentials& listener, const std::vector<std::byte>& bytes,
            std::size_t read_max = SIZE_MAX) {
  executor unused;
  raw_wire w{unused, listener, tls_role::server};
  w.our_end.read_max = read_max;
  w.raw_end.deliver(bytes);
  of_listeners = {};
  support::started side{w.loop.scheduler, one_side(w.on_ours, w.role, {}, w.our_side)};
  w.loop.settle();
  side.request_stop();
  w.loop.settle();
  return handled_by(w);
}

/// A ClientHello that never ends, in records of one byte.
std::vector<std::byte> endless_hello() {
  const std::vector<std::byte> body = {std::byte{1}, {}, std::byte{0xff}, std::byte{0xff}};
  std::vector<std::byte> bytes;
  for (std::size_t n = 0; bytes.size() < 2 * tls_channel::handshake_bytes_max; ++n) {
    for (const unsigned header : {22u, 3u, 1u, 0u, 1u}) bytes.push_back(std::byte(header));
    bytes.push_back(n < body.size() ? body[n] : std::byte{});
  }
  return bytes;
}

/// A certificate that so many issuers lead to from the authority, which signs the first of them.
credentials::certificate_files chain_of(const authority& ca, unsigned issuers,
                                        const certificate_terms& of_leaf = {}) {
  std::vector<certified> chain;
  for (unsigned n = 0; n < issuers; ++n) {
    const certificate_terms terms{
        .common_name = "issuer " + std::to_string(n), .names = {}, .is_authority = true};
    chain.push_back(ca.sign(terms, n == 0 ? nullptr : &chain.back()));
  }
  const credentials::certificate_files files =
      ca.files(ca.sign(of_leaf, issuers == 0 ? nullptr : &chain.back()));
  const std::string path = (ca.folder().path / "issuer.pem").string();
  for (auto issuer = chain.rbegin(); issuer != chain.rend(); ++issuer) {
    write_pem(path, issuer->certificate.get());
    std::ofstream{files.chain, std::ios::app} << std::ifstream{path}.rdbuf();
  }
  return files;
}

constexpr unsigned issuers_max = 8;
/// The listener verifies the chain of its own certificate, to send it, and then the client's. Of
/// certificates, the client's, its issuers' and its own are checked; then what the client signs.
constexpr work most_by_certificate{
    .agreements = 1, .signatures = 1, .verifications = issuers_max + 3, .chains = 2};

}  // namespace

TEST_CASE("a client makes a listener with certificates agree on one key, and verify one chain",
          "[security]") {
  const authority ca;
  const authority foreign{"another authority"};
  const credentials listener = ca.issue();
  const auto with = [](const credentials::certificate_files& files) {
    return [files](raw_peer& peer) { peer.set_certificate(files); };
  };
  const auto by_groups = [&](const char* groups) {
    return [&, groups](raw_peer& peer) {
      peer.set_certificate(foreign.files(certificate_terms{}));
      REQUIRE(SSL_CTX_set1_groups_list(peer.context(), groups) == 1);
    };
  };
  // The longest chain that is taken, and all its signatures are checked.
  const handled longest = shake_hands(listener, with(chain_of(ca, issuers_max)));
  CHECK(longest.text == "succeeded");
  CHECK(longest.done.verifications == most_by_certificate.verifications);
  longest.check_within(most_by_certificate);

  struct refused {
    const char* says;
    handled got;
  };
  const refused all[] = {
      {"expired", shake_hands(listener, with(chain_of(ca, issuers_max,
                                                      {.begins_s = -7200, .ends_s = -3600})))},
      {"too long", shake_hands(listener, with(chain_of(ca, issuers_max + 1)))},
      {"too long", shake_hands(listener, with(chain_of(ca, 40)))},
      {"no authority in", shake_hands(listener, with(chain_of(foreign, issuers_max)))},
      {"no authority in", shake_hands(listener, by_groups("P-384"))},
      {"no authority in", shake_hands(listener, by_groups("X448:P-384"))},  // Asked once more.
      {"no certificate", shake_hands(listener, [](raw_peer&) {})},
      {"65536 bytes", say(listener, endless_hello())},
      {"65536 bytes", say(listener, endless_hello(), 1)},
  };
  for (const refused& each : all) {
    CHECK_THAT(each.got.text, Contains(each.says));
    each.got.check_within(most_by_certificate);
    // Only a chain that leads to the authority makes the listener check signatures of others.
    if (&each != &all[0]) CHECK(each.got.done.verifications <= 1);
  }
}

TEST_CASE("a client without the key makes a listener agree on none, and sign nothing",
          "[security]") {
  const credentials listener = blue(1);
  const auto with = [](const char* id, unsigned char filled) {
    return [=](raw_peer& peer) { peer.set_key({id, secret_of(filled)}); };
  };
  const work nothing{};
  const handled right = shake_hands(listener, with("blue", 1));
  CHECK(right.text == "succeeded");
  right.check_within({.agreements = 1});
  for (const auto& make : {with("blue", 2), with("red!", 1)}) {
    const handled wrong = shake_hands(listener, make);
    CHECK_THAT(wrong.text, Contains("not authenticated"));
    wrong.check_within(nothing);
  }
  const handled keyless = shake_hands(listener, [](raw_peer&) {});
  CHECK_THAT(keyless.text, Contains("offers no key"));
  keyless.check_within(nothing);
  say(listener, endless_hello(), 1).check_within(nothing);
}
