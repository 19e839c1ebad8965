#include "base/failures.hpp"
#include "base/random.hpp"
#include "security/credentials_contents.hpp"
#include "security/handshake_notes.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>

namespace cordma {
namespace {

// With a pre-shared key, its hash is that of the suite: all sides must have the same.
constexpr const char* psk_suite = "TLS_AES_128_GCM_SHA256";
constexpr const unsigned char psk_suite_number[] = {0x13, 0x01};
constexpr const char* certificate_suites =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
constexpr const char* groups = "X25519:P-256:P-384";
constexpr const char* groups_of_fips = "P-256:P-384";
constexpr int security_level = 2;  // 112 bits: RSA from 2048, no SHA-1.
constexpr int chain_depth_max = 8;
constexpr std::size_t decoy_bytes = 32;
constexpr unsigned char alpn_list[] =
    "\x08"
    "cordma/1";  // ALPN's list has the length first.
constexpr unsigned alpn_list_bytes = sizeof alpn_list - 1;

const credentials::contents& contents_of(SSL* ssl) noexcept {
  return *static_cast<const credentials::contents*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
}

handshake_notes& notes_of(SSL* ssl) noexcept {
  return *static_cast<handshake_notes*>(SSL_get_app_data(ssl));
}

/// A session that OpenSSL takes an external key from; null: no memory. OpenSSL writes into it, so
/// each handshake has one of its own.
SSL_SESSION* session_of(SSL* ssl, const credentials::psk_key& key) noexcept {
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* suite = SSL_CIPHER_find(ssl, psk_suite_number);
  if (session != nullptr && suite != nullptr &&
      SSL_SESSION_set1_master_key(session,
                                  reinterpret_cast<const unsigned char*>(key.secret.data()),
                                  key.secret.size()) == 1 &&
      SSL_SESSION_set_cipher(session, suite) == 1 &&
      SSL_SESSION_set1_id_context(session, alpn_list, alpn_list_bytes) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

int use_key(SSL* ssl, const EVP_MD* /*hash*/, const unsigned char** id, std::size_t* id_bytes,
            SSL_SESSION** session) {
  const credentials::psk_key& key = contents_of(ssl).keys.front();
  *session = session_of(ssl, key);
  *id = reinterpret_cast<const unsigned char*>(key.id.data());
  *id_bytes = key.id.size();
  return *session != nullptr ? 1 : 0;
}

int find_key(SSL* ssl, const unsigned char* id, std::size_t id_bytes, SSL_SESSION** session) {
  const std::vector<credentials::psk_key>& keys = contents_of(ssl).keys;
  const std::string_view asked{reinterpret_cast<const char*>(id), id_bytes};
  try {
    handshake_notes& notes = notes_of(ssl);
    notes.was_key_offered = true;
    notes.key_id = printable(std::string{asked}, 64);
    notes.key = keys.size() - 1;  // The random one.
    for (std::size_t i = 0; i + 1 < keys.size(); ++i) {
      if (keys[i].id == asked) notes.key = i;
    }
    *session = session_of(ssl, keys[notes.key]);
    return *session != nullptr ? 1 : 0;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

int choose_protocol(SSL* /*ssl*/, const unsigned char** chosen, unsigned char* chosen_bytes,
                    const unsigned char* offered, unsigned offered_bytes, void* /*unused*/) {
  unsigned char* found = nullptr;
  const int outcome = SSL_select_next_proto(&found, chosen_bytes, alpn_list, alpn_list_bytes,
                                            offered, offered_bytes);
  *chosen = found;
  return outcome == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

handshake_notes::finding finding_of_verify(int verify_error) noexcept {
  using enum handshake_notes::finding;
  switch (verify_error) {
    case X509_V_ERR_CERT_HAS_EXPIRED: return expired;
    case X509_V_ERR_CERT_NOT_YET_VALID: return not_yet_valid;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE: return unknown_authority;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH: return wrong_name;
    default: return bad_certificate;
  }
}

/// Returns the text that `print` writes into a BIO.
template <class Print>
std::string written(Print print) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> text{BIO_new(BIO_s_mem()), &BIO_free};
  if (text == nullptr) throw std::bad_alloc{};
  print(text.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(text.get(), &data);
  return size > 0 ? std::string(data, std::size_t(size)) : std::string{};
}

std::string names_of(X509* certificate) {
  const int at = X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1);
  if (at < 0) return {};
  return written([&](BIO* text) { X509V3_EXT_print(text, X509_get_ext(certificate, at), 0, 0); });
}

int note_certificate(int is_good, X509_STORE_CTX* store) {
  if (is_good == 1) return 1;
  auto* ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  const int error = X509_STORE_CTX_get_error(store);
  X509* certificate = X509_STORE_CTX_get_current_cert(store);
  try {
    handshake_notes& notes = notes_of(ssl);
    notes.found = finding_of_verify(error);
    notes.why = X509_verify_cert_error_string(error);
    if (certificate == nullptr) return 0;
    notes.subject = printable(written([&](BIO* text) {
                                X509_NAME_print_ex(text, X509_get_subject_name(certificate), 0,
                                                   XN_FLAG_ONELINE);
                              }),
                              80);
    notes.names = printable(names_of(certificate), 100);
    notes.valid = written([&](BIO* text) {
      ASN1_TIME_print(text, error == X509_V_ERR_CERT_HAS_EXPIRED
                                ? X509_get0_notAfter(certificate)
                                : X509_get0_notBefore(certificate));
    });
  } catch (const std::bad_alloc&) {
    return 0;  // Refused all the same.
  }
  return 0;
}

int give_no_passphrase(char* /*into*/, int /*size*/, int /*writing*/, void* was_asked) {
  *static_cast<bool*>(was_asked) = true;
  return -1;
}

[[noreturn]] void refuse_file(const std::string& path, const char* problem) {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  const auto text =
      detail::detail_text("%s: %s%s%s%s", path.c_str(), problem, reason != nullptr ? " (" : "",
                          reason != nullptr ? reason : "", reason != nullptr ? ")" : "");
  ERR_clear_error();
  detail::throw_errno(EINVAL, "credentials::certificates", text);
}

/// OpenSSL's own errors of files say little.
void check_readable(const std::string& path, const char* option) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) {
    const int why = errno;
    detail::throw_errno(why, "credentials::certificates",
                        detail::detail_text("certificate_files::%s is '%s'", option, path.c_str()));
  }
  std::fclose(file);
}

void load(SSL_CTX* context, const credentials::certificate_files& files) {
  check_readable(files.chain, "chain");
  check_readable(files.key, "key");
  check_readable(files.authorities, "authorities");
  bool was_passphrase_asked = false;
  SSL_CTX_set_default_passwd_cb(context, &give_no_passphrase);
  SSL_CTX_set_default_passwd_cb_userdata(context, &was_passphrase_asked);
  if (SSL_CTX_use_certificate_chain_file(context, files.chain.c_str()) != 1) {
    refuse_file(files.chain, "no PEM file of certificates that can be used, this side's first");
  }
  if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    refuse_file(files.key,
                was_passphrase_asked
                    ? "a passphrase protects the key: store it without, readable by "
                      "this user only"
                    : "not the private key, in PEM, of the first certificate of the chain");
  }
  if (SSL_CTX_check_private_key(context) != 1) {
    refuse_file(files.key, "not the key of the first certificate of the chain");
  }
  if (SSL_CTX_load_verify_file(context, files.authorities.c_str()) != 1) {
    refuse_file(files.authorities, "no PEM file of authorities' certificates");
  }
  SSL_CTX_set_default_passwd_cb(context, nullptr);
  SSL_CTX_set_default_passwd_cb_userdata(context, nullptr);
}

void add_decoy(std::vector<credentials::psk_key>& keys) {
  std::vector<std::byte> secret(decoy_bytes);
  detail::random_bytes(secret);
  keys.emplace_back(std::string{}, std::move(secret));
}

/// Sets the options that keys and certificates have in common. The context takes none from
/// openssl.cnf.
bool configure(SSL_CTX* context, const char* suites) {
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                   SSL_OP_CIPHER_SERVER_PREFERENCE);
  // The first: key exchange always, so that a key that leaks later opens nothing old. The second:
  // records that mean nothing. The third: an end without close_notify is never clean.
  SSL_CTX_clear_options(context, SSL_OP_ALLOW_NO_DHE_KEX | SSL_OP_ENABLE_MIDDLEBOX_COMPAT |
                                     SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_security_level(context, security_level);
  SSL_CTX_set_verify_depth(context, chain_depth_max);
  SSL_CTX_set_alpn_select_cb(context, &choose_protocol, nullptr);
  return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
         SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
         SSL_CTX_set_num_tickets(context, 0) == 1 && SSL_CTX_set_max_early_data(context, 0) == 1 &&
         SSL_CTX_set_ciphersuites(context, suites) == 1 &&
         (SSL_CTX_set1_groups_list(context, groups) == 1 ||
          SSL_CTX_set1_groups_list(context, groups_of_fips) == 1) &&
         SSL_CTX_set_session_id_context(context, alpn_list, alpn_list_bytes) == 1 &&
         SSL_CTX_set_alpn_protos(context, alpn_list, alpn_list_bytes) == 0;
}

}  // namespace

void ssl_ctx_free::operator()(ssl_ctx_st* context) const noexcept { SSL_CTX_free(context); }

void make_tls_context(credentials::contents& made) {
  const bool has_keys = made.kind == authentication::psk;
  ERR_clear_error();
  made.context.reset(SSL_CTX_new(TLS_method()));
  SSL_CTX* context = made.context.get();
  if (context == nullptr || !configure(context, has_keys ? psk_suite : certificate_suites)) {
    const char* reason = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    detail::throw_failure(errc::not_supported, "SSL_CTX_new",
                          detail::detail_text("this OpenSSL, as openssl.cnf sets it up, cannot do "
                                              "what cordma needs: %s",
                                              reason != nullptr ? reason : "no reason given"));
  }
  SSL_CTX_set_app_data(context, &made);
  if (has_keys) {
    add_decoy(made.keys);
    // A server that answers with a certificate instead finds no authority for it.
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, &note_certificate);
    SSL_CTX_set_psk_use_session_callback(context, &use_key);
    SSL_CTX_set_psk_find_session_callback(context, &find_key);
  } else {
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       &note_certificate);
    load(context, made.files);
    ERR_clear_error();
  }
}

}  // namespace cordma
