#include <cordma/security/credentials.hpp>

#include "security/certificates.hpp"
#include "security/credentials_contents.hpp"
#include "security/tls_engine.hpp"
#include "security/values.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <cerrno>
#include <fstream>
#include <type_traits>

using namespace cordma;
using namespace cordma::test;
using Catch::Matchers::Contains;

namespace {

using psk_key = credentials::psk_key;
using certificate_files = credentials::certificate_files;

template <class Make>
failure failure_of(Make make) {
  try {
    make();
  } catch (const error& e) {
    return e.failure();
  }
  FAIL("nothing was thrown");
  return {};
}

std::string detail_of(const failure& f) { return std::string{f.detail.view()}; }

std::string write_text(const authority& ca, const char* name, const char* text) {
  const std::string path = (ca.folder().path / name).string();
  std::ofstream{path} << text;
  return path;
}

}  // namespace

TEST_CASE("credentials say which kind they are, and are moved only", "[security]") {
  const authority ca;
  credentials key = credentials::psk({"blue", secret_of(1)});
  CHECK(key.kind() == authentication::psk);
  CHECK(ca.issue().kind() == authentication::certificate);
  const credentials moved{std::move(key)};
  CHECK(moved.kind() == authentication::psk);
  STATIC_REQUIRE(!std::is_copy_constructible_v<credentials>);
}

TEST_CASE("a key's secret has 16 to 64 bytes, and an error tells only its id", "[security]") {
  for (const std::size_t size : {16u, 32u, 64u}) {
    CHECK(credentials::psk({"blue", secret_of(1, size)}).kind() == authentication::psk);
  }
  for (const std::size_t size : {0u, 15u, 65u}) {
    const failure f = failure_of([&] { credentials::psk({"blue", secret_of('S', size)}); });
    CHECK(f.code == errc::limit_exceeded);
    CHECK_THAT(detail_of(f), Contains("'blue'") && Contains("16 to 64") && !Contains("SSS"));
  }
}

TEST_CASE("a key's id has 1 to 64 characters that print", "[security]") {
  CHECK(credentials::psk({std::string(64, 'i'), secret_of(1)}).kind() == authentication::psk);
  for (const std::string& id : {std::string{}, std::string(65, 'i'), std::string{"a\nb"},
                                std::string{"a\0b", 3}, std::string{"\xc3\xa4"}}) {
    const failure f = failure_of([&] { credentials::psk({id, secret_of(1)}); });
    CHECK(f.code == errc::limit_exceeded);
  }
}

TEST_CASE("two keys need two ids", "[security]") {
  const failure f =
      failure_of([] { credentials::psk({"blue", secret_of(1)}, {"blue", secret_of(2)}); });
  CHECK(f.code.value() == EINVAL);
  CHECK_THAT(detail_of(f), Contains("'blue'"));
}

TEST_CASE("a key that is moved from keeps nothing, and one that is assigned to has the new secret",
          "[security]") {
  alignas(psk_key) std::byte memory[sizeof(psk_key)];
  auto* key = new (memory) psk_key{"blue", secret_of(7)};
  psk_key copy{*key};
  psk_key moved{std::move(*key)};
  CHECK(key->secret.empty());
  key->~psk_key();
  CHECK(copy.secret == moved.secret);
  copy = psk_key{"green", secret_of(8)};
  CHECK(copy.id == "green");
  CHECK(copy.secret == secret_of(8));
}

TEST_CASE("a file that is missing is named, with the reason and its option", "[security]") {
  const authority ca;
  const certificate_files good = ca.files(certificate_terms{});
  for (auto option :
       {&certificate_files::chain, &certificate_files::key, &certificate_files::authorities}) {
    certificate_files bad = good;
    bad.*option = "/nowhere/x.pem";
    const failure f = failure_of([&] { credentials::certificates(bad); });
    CHECK(f.code.value() == ENOENT);
    CHECK_THAT(detail_of(f), Contains("/nowhere/x.pem") && Contains("certificate_files::"));
  }
}

TEST_CASE("a file that holds something else is named", "[security]") {
  const authority ca;
  const certificate_files good = ca.files(certificate_terms{});
  const std::string junk = write_text(ca, "junk.pem", "junk\n");
  for (auto option :
       {&certificate_files::chain, &certificate_files::key, &certificate_files::authorities}) {
    certificate_files bad = good;
    bad.*option = junk;
    const failure f = failure_of([&] { credentials::certificates(bad); });
    CHECK(f.code.value() == EINVAL);
    CHECK_THAT(detail_of(f), Contains("junk.pem"));
  }
}

TEST_CASE("a key of another certificate is refused, and one with a passphrase", "[security]") {
  const authority ca;
  certificate_files files = ca.files(certificate_terms{});
  files.key = ca.files(certificate_terms{}).key;
  CHECK_THAT(detail_of(failure_of([&] { credentials::certificates(files); })),
             Contains(".key") && Contains("first certificate"));

  const certified one = ca.sign({});
  files = ca.files(one);
  write_pem(files.key, one.key.get(), "a secret");
  const failure f = failure_of([&] { credentials::certificates(files); });
  CHECK_THAT(detail_of(f), Contains("passphrase") && !Contains("a secret"));
}
