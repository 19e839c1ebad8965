#include "tls_engine.hpp"

#include "base/failures.hpp"
#include "credentials_contents.hpp"

#include <cordma/detail/base/assert.hpp>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace cordma {
namespace {

using finding = handshake_notes::finding;

constexpr const char* handshake_call = "TLS handshake";
constexpr std::string_view protocol = "cordma/1";
constexpr std::size_t name_bytes_max = 255;

const char* reason_text() noexcept {
  const char* text = ERR_reason_error_string(ERR_peek_error());
  return text != nullptr ? text : "no reason given";
}

[[noreturn]] void fail(errc code, const char* call, fixed_text<240> why) {
  ERR_clear_error();  // The program's own calls of OpenSSL do not see it.
  detail::throw_failure(code, call, why);
}

finding finding_of_reason(int reason) noexcept {
  if (reason > SSL_AD_REASON_OFFSET) return finding::refused;  // An alert of the peer's.
  switch (reason) {
    case SSL_R_BINDER_DOES_NOT_VERIFY: return finding::wrong_key;
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: return finding::no_certificate;
    case SSL_R_NO_APPLICATION_PROTOCOL: return finding::other_protocol;
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_WRONG_SSL_VERSION:
    case SSL_R_VERSION_TOO_LOW: return finding::old_version;
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SHARED_GROUPS:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS: return finding::nothing_common;
    default: return finding::no_tls;
  }
}

std::string_view text_of(const ASN1_STRING* text) noexcept {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          std::size_t(ASN1_STRING_length(text))};
}

std::string text_of(const GENERAL_NAME& name) {
  switch (name.type) {
    case GEN_DNS: return std::string{text_of(name.d.dNSName)};
    case GEN_URI: return std::string{text_of(name.d.uniformResourceIdentifier)};
    case GEN_EMAIL: return std::string{text_of(name.d.rfc822Name)};
    case GEN_IPADD: break;
    default: return {};
  }
  const std::string_view address = text_of(name.d.iPAddress);
  char text[INET6_ADDRSTRLEN] = "";
  if (address.size() == sizeof(in_addr)) ::inet_ntop(AF_INET, address.data(), text, sizeof text);
  if (address.size() == sizeof(in6_addr)) ::inet_ntop(AF_INET6, address.data(), text, sizeof text);
  return text;
}

/// A name that shows otherwise than it compares could pass for another's.
bool is_name(std::string_view text) noexcept {
  return !text.empty() && text.size() <= name_bytes_max &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

std::string name_of(X509* certificate) {
  const std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)> names{
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)),
      &GENERAL_NAMES_free};
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    std::string name = text_of(*sk_GENERAL_NAME_value(names.get(), i));
    if (is_name(name)) return name;
  }
  const X509_NAME* subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0) return {};
  const std::string_view name = text_of(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  return is_name(name) ? std::string{name} : std::string{};
}

/// Counts the records without data that OpenSSL reads, most of which it never mentions otherwise.
void count_dataless(int is_write, int /*version*/, int what, const void* bytes, std::size_t size,
                    SSL* /*ssl*/, void* count) {
  if (is_write != 0 || what != SSL3_RT_INNER_CONTENT_TYPE || size != 1) return;
  const bool has_data = *static_cast<const unsigned char*>(bytes) == SSL3_RT_APPLICATION_DATA;
  if (!has_data) ++*static_cast<unsigned*>(count);
}

}  // namespace

void tls_engine::ssl_free::operator()(ssl_st* ssl) const noexcept { SSL_free(ssl); }

tls_engine::tls_engine(const credentials& used, tls_role role, const std::string& host)
    : used_{used.inside()}, role_{role}, ssl_{SSL_new(used_.context.get())} {
  BIO* in = BIO_new(BIO_s_mem());
  BIO* out = BIO_new(BIO_s_mem());
  if (ssl_ == nullptr || in == nullptr || out == nullptr) {
    BIO_free(in);
    BIO_free(out);
    ERR_clear_error();
    throw std::bad_alloc{};
  }
  SSL_set_bio(ssl_.get(), in, out);
  SSL_set_app_data(ssl_.get(), &notes_);
  if (role == tls_role::client) {
    SSL_set_connect_state(ssl_.get());
  } else {
    SSL_set_accept_state(ssl_.get());
  }
  if (used_.kind != authentication::certificate) return;
  if (!used_.files.peer_name.empty()) {
    name_peer(used_.files.peer_name);
  } else if (role == tls_role::client) {
    name_peer(host);
  }
}

tls_engine::~tls_engine() = default;

/// Lets only a certificate pass that is for this name or address.
void tls_engine::name_peer(const std::string& host) {
  std::string name = host.substr(0, host.find('%'));  // Without an address's interface.
  if (name.ends_with('.')) name.pop_back();
  if (name.empty()) {
    detail::throw_errno(EINVAL, handshake_call,
                        "there is no host whose name the peer's certificate must have: set "
                        "certificate_files::peer_name");
  }
  X509_VERIFY_PARAM* param = SSL_get0_param(ssl_.get());
  if (X509_VERIFY_PARAM_set1_ip_asc(param, name.c_str()) != 1) {
    SSL_set_hostflags(ssl_.get(),
                      X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    // OpenSSL takes ".example" for each name below it.
    if (name.front() == '.' || X509_VERIFY_PARAM_set1_host(param, name.data(), name.size()) != 1) {
      ERR_clear_error();
      detail::throw_errno(EINVAL, handshake_call,
                          detail::detail_text("'%s' is no name that a certificate can have",
                                              printable(name, 100).c_str()));
    }
  }
  ERR_clear_error();
  asked_name_ = std::move(name);
}

void tls_engine::feed(std::span<const std::byte> records) {
  if (records.empty()) return;
  std::size_t taken = 0;
  BIO_write_ex(SSL_get_rbio(ssl_.get()), records.data(), records.size(), &taken);
  if (taken != records.size()) throw std::bad_alloc{};
}

std::span<const std::byte> tls_engine::output() const noexcept {
  char* data = nullptr;
  const long size = BIO_get_mem_data(SSL_get_wbio(ssl_.get()), &data);
  return {reinterpret_cast<const std::byte*>(data), std::size_t(size)};
}

void tls_engine::sent(std::size_t bytes) noexcept {
  std::array<std::byte, 1024> forgotten{};
  while (bytes != 0) {
    std::size_t n = 0;
    BIO_read_ex(SSL_get_wbio(ssl_.get()), forgotten.data(), std::min(bytes, forgotten.size()), &n);
    CORDMA_ASSERT(n != 0, "more was sent than the output had");
    bytes -= n;
  }
}

bool tls_engine::shake_hands() {
  ERR_clear_error();
  const int outcome = SSL_do_handshake(ssl_.get());
  if (outcome != 1) {
    switch (SSL_get_error(ssl_.get(), outcome)) {
      case SSL_ERROR_WANT_READ: return false;
      case SSL_ERROR_ZERO_RETURN:
        fail(errc::disconnected, handshake_call, "the peer ended TLS before it was known");
      default: fail_handshake();
    }
  }
  const std::string missing = missing_proof();
  if (!missing.empty()) fail(errc::not_authenticated, handshake_call, missing);
  const unsigned char* chosen = nullptr;
  unsigned chosen_bytes = 0;
  SSL_get0_alpn_selected(ssl_.get(), &chosen, &chosen_bytes);
  if (std::string_view{reinterpret_cast<const char*>(chosen), chosen_bytes} != protocol) {
    notes_.found = finding::other_protocol;
    fail_handshake();
  }
  peer_.kind = used_.kind;
  if (used_.kind == authentication::psk) {
    peer_.name = used_.keys[notes_.key].id;
  } else {
    peer_.name = asked_name_.empty() ? name_of(SSL_get0_peer_certificate(ssl_.get())) : asked_name_;
  }
  SSL_set_msg_callback(ssl_.get(), &count_dataless);
  SSL_set_msg_callback_arg(ssl_.get(), &dataless_records_);
  return true;
}

/// Looks again at what OpenSSL was told to insist on; empty: nothing is missing.
std::string tls_engine::missing_proof() const {
  if (SSL_version(ssl_.get()) != TLS1_3_VERSION) return "the version is not TLS 1.3";
  const bool has_certificate = SSL_get0_peer_certificate(ssl_.get()) != nullptr;
  const bool used_key = SSL_session_reused(ssl_.get()) == 1;
  if (used_.kind == authentication::psk) {
    const bool is_known = role_ == tls_role::client || notes_.key + 1 < used_.keys.size();
    return used_key && is_known && !has_certificate ? "" : "the peer did not use the key";
  }
  const bool is_verified = SSL_get_verify_result(ssl_.get()) == X509_V_OK;
  return has_certificate && is_verified && !used_key ? ""
                                                     : "the peer's certificate is not verified";
}

tls_engine::exported tls_engine::export_secret(std::string_view label,
                                               std::span<const std::byte> context) const {
  CORDMA_ASSERT(peer_.kind != authentication::none, "no secret before the handshake has ended");
  exported secret;
  if (SSL_export_keying_material(ssl_.get(), reinterpret_cast<unsigned char*>(secret.data()),
                                 secret.size(), label.data(), label.size(),
                                 reinterpret_cast<const unsigned char*>(context.data()),
                                 context.size(), 1) != 1) {
    ERR_clear_error();
    throw std::bad_alloc{};
  }
  return secret;
}

std::optional<std::size_t> tls_engine::read(std::span<std::byte> into) {
  ERR_clear_error();
  std::size_t n = 0;
  const bool has_come = SSL_read_ex(ssl_.get(), into.data(), into.size(), &n) == 1;
  if (dataless_records_ > dataless_records_max) {
    fail(errc::bad_frame, "TLS read",
         detail::detail_text("more than %u records without data", dataless_records_max));
  }
  if (has_come) {
    has_read_ = true;
    return n;
  }
  switch (SSL_get_error(ssl_.get(), 0)) {
    case SSL_ERROR_WANT_READ: return std::nullopt;
    case SSL_ERROR_ZERO_RETURN: return 0;
    default: fail_data("TLS read");
  }
}

std::size_t tls_engine::write(std::span<const std::byte> from) {
  if (from.empty()) return 0;
  ERR_clear_error();
  std::size_t n = 0;
  if (SSL_write_ex(ssl_.get(), from.data(), from.size(), &n) != 1) fail_data("TLS write");
  return n;
}

void tls_engine::close() noexcept {
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

void tls_engine::fail_data(const char* call) {
  const int reason = ERR_GET_REASON(ERR_peek_error());
  if (reason > SSL_AD_REASON_OFFSET && !has_read_) {
    fail(errc::not_authenticated, call,
         detail::detail_text("the peer refused this side: %s", reason_text()));
  }
  fail(errc::bad_frame, call,
       detail::detail_text("%s: not what the peer sent, or no TLS", reason_text()));
}

void tls_engine::fail_handshake() {
  // The callbacks' notes say more than OpenSSL's reason.
  if (notes_.found == finding::none) {
    notes_.found = finding_of_reason(ERR_GET_REASON(ERR_peek_error()));
    notes_.why = reason_text();
    if (used_.kind == authentication::psk && role_ == tls_role::server && !notes_.was_key_offered &&
        notes_.found == finding::nothing_common) {
      notes_.found = finding::no_key;
    }
  }
  ERR_clear_error();
  detail::throw_error(explain(notes_, used_, asked_name_));
}

}  // namespace cordma
