// Where cordma is built without OpenSSL: credentials are refused when they are made, so nothing
// else is ever called.

#include "base/failures.hpp"
#include "credentials_contents.hpp"
#include "tls_engine.hpp"

#include <cordma/detail/base/assert.hpp>

namespace cordma {
namespace {

[[noreturn]] void never() noexcept {
  CORDMA_ASSERT(false, "TLS without OpenSSL");
  __builtin_unreachable();
}

}  // namespace

void ssl_ctx_free::operator()(ssl_ctx_st* /*context*/) const noexcept {}
void tls_engine::ssl_free::operator()(ssl_st* /*ssl*/) const noexcept {}

void make_tls_context(credentials::contents& made) {
  detail::throw_failure(
      errc::not_supported,
      made.kind == authentication::psk ? "credentials::psk" : "credentials::certificates",
      "cordma was built without OpenSSL: install OpenSSL 3's headers (Debian: libssl-dev) and "
      "build "
      "cordma with -Dopenssl=enabled");
}

tls_engine::tls_engine(const credentials& used, tls_role role, const std::string& /*host*/)
    : used_{used.inside()}, role_{role} {
  never();
}
tls_engine::~tls_engine() = default;
void tls_engine::feed(std::span<const std::byte> /*records*/) { never(); }
std::span<const std::byte> tls_engine::output() const noexcept { never(); }
void tls_engine::sent(std::size_t /*bytes*/) noexcept { never(); }
bool tls_engine::shake_hands() { never(); }
tls_engine::exported tls_engine::export_secret(std::string_view /*label*/,
                                               std::span<const std::byte> /*context*/) const {
  never();
}
std::optional<std::size_t> tls_engine::read(std::span<std::byte> /*into*/) { never(); }
std::size_t tls_engine::write(std::span<const std::byte> /*from*/) { never(); }
void tls_engine::close() noexcept { never(); }

}  // namespace cordma
