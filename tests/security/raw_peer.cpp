#include "raw_peer.hpp"

#include <catch2/catch.hpp>

#include <openssl/err.h>

#include <array>

namespace cordma::test {
namespace {

// The peer's key for callbacks, which get no pointer of their own.
const credentials::psk_key& key_of(SSL* ssl) {
  return *static_cast<const credentials::psk_key*>(SSL_get_app_data(ssl));
}

SSL_SESSION* session_of(SSL* ssl) {
  constexpr unsigned char suite[] = {0x13, 0x01};
  SSL_SESSION* session = SSL_SESSION_new();
  const credentials::psk_key& key = key_of(ssl);
  SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.secret.data()),
                              key.secret.size());
  SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, suite));
  SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
  return session;
}

}  // namespace

raw_peer::raw_peer(tls_role role) : role_{role}, context_{SSL_CTX_new(TLS_method())} {
  REQUIRE(context_ != nullptr);
  SSL_CTX_set_verify(context(), SSL_VERIFY_NONE, nullptr);
  set_protocol("cordma/1");
}

raw_peer::~raw_peer() = default;

void raw_peer::set_protocol(const char* name) {
  protocol_ = name;
  if (!protocol_.empty()) protocol_.insert(protocol_.begin(), char(protocol_.size()));
  const auto* list = reinterpret_cast<const unsigned char*>(protocol_.data());
  SSL_CTX_set_alpn_protos(context(), list, unsigned(protocol_.size()));
  const auto choose = [](SSL* /*ssl*/, const unsigned char** out, unsigned char* out_size,
                         const unsigned char* /*in*/, unsigned /*in_size*/, void* own) {
    const auto& chosen = *static_cast<const std::string*>(own);
    if (chosen.empty()) return SSL_TLSEXT_ERR_NOACK;
    *out = reinterpret_cast<const unsigned char*>(chosen.data()) + 1;
    *out_size = static_cast<unsigned char>(chosen[0]);
    return SSL_TLSEXT_ERR_OK;
  };
  SSL_CTX_set_alpn_select_cb(context(), choose, &protocol_);
}

void raw_peer::set_certificate(const credentials::certificate_files& files) {
  REQUIRE(SSL_CTX_use_certificate_chain_file(context(), files.chain.c_str()) == 1);
  REQUIRE(SSL_CTX_use_PrivateKey_file(context(), files.key.c_str(), SSL_FILETYPE_PEM) == 1);
}

void raw_peer::set_key(const credentials::psk_key& key) {
  key_ = key;
  REQUIRE(SSL_CTX_set_ciphersuites(context(), "TLS_AES_128_GCM_SHA256") == 1);
  SSL_CTX_set_psk_use_session_callback(
      context(), [](SSL* ssl, const EVP_MD* /*hash*/, const unsigned char** id,
                    std::size_t* id_size, SSL_SESSION** session) {
        *id = reinterpret_cast<const unsigned char*>(key_of(ssl).id.data());
        *id_size = key_of(ssl).id.size();
        *session = session_of(ssl);
        return 1;
      });
  SSL_CTX_set_psk_find_session_callback(
      context(),
      [](SSL* ssl, const unsigned char* /*id*/, std::size_t /*id_size*/, SSL_SESSION** session) {
        *session = session_of(ssl);
        return 1;
      });
}

std::vector<std::byte> raw_peer::output() {
  std::vector<std::byte> bytes(std::size_t(BIO_pending(SSL_get_wbio(ssl_.get()))));
  if (!bytes.empty()) BIO_read(SSL_get_wbio(ssl_.get()), bytes.data(), int(bytes.size()));
  return bytes;
}

task<> raw_peer::run(wire_end& end) {
  ssl_.reset(SSL_new(context()));
  SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  SSL_set_app_data(ssl_.get(), &key_);
  if (role_ == tls_role::client) {
    SSL_set_connect_state(ssl_.get());
  } else {
    SSL_set_accept_state(ssl_.get());
  }
  std::array<std::byte, 4096> bytes{};
  for (;;) {
    ERR_clear_error();
    const int done = has_succeeded ? 1 : SSL_do_handshake(ssl_.get());
    const bool has_failed = done != 1 && SSL_get_error(ssl_.get(), done) != SSL_ERROR_WANT_READ;
    has_succeeded = done == 1;
    if (has_failed) error = ERR_reason_error_string(ERR_peek_error());
    const std::vector<std::byte> out = output();
    co_await write_all(end, out);
    if (has_failed) break;
    const std::size_t n = co_await read_some(end, bytes);
    if (n == 0) break;
    BIO_write(SSL_get_rbio(ssl_.get()), bytes.data(), int(n));
  }
  ERR_clear_error();
}

void raw_peer::send(wire_end& end, std::span<const std::byte> bytes) {
  REQUIRE(SSL_write(ssl_.get(), bytes.data(), int(bytes.size())) == int(bytes.size()));
  end.deliver(output());
}

void raw_peer::send_new_keys(wire_end& end) {
  renew_keys();
  REQUIRE(SSL_do_handshake(ssl_.get()) == 1);
  end.deliver(output());
}

std::vector<std::byte> raw_peer::receive(wire_end& end) {
  std::vector<std::byte> bytes(64 * 1024);
  const auto came = end.try_read(bytes);
  REQUIRE(came.has_value());
  BIO_write(SSL_get_rbio(ssl_.get()), bytes.data(), int(*came));
  const int n = SSL_read(ssl_.get(), bytes.data(), int(bytes.size()));
  REQUIRE(n > 0);
  bytes.resize(std::size_t(n));
  return bytes;
}

}  // namespace cordma::test
