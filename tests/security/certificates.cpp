#include "certificates.hpp"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstring>

namespace cordma::test {
namespace {

void add_extension(X509* to, int kind, const char* value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value);
  REQUIRE(extension != nullptr);
  REQUIRE(X509_add_ext(to, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

/// Makes a certificate with a key; signed by its own if `signer` is null.
certified make(const certificate_terms& terms, long serial, const certified* signer) {
  certified made;
  made.key.reset(terms.rsa_bits != 0 ? EVP_RSA_gen(terms.rsa_bits) : EVP_EC_gen("P-256"));
  made.certificate.reset(X509_new());
  REQUIRE(made.key != nullptr);
  X509* certificate = made.certificate.get();
  REQUIRE(certificate != nullptr);
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), terms.begins_s);
  X509_gmtime_adj(X509_getm_notAfter(certificate), terms.ends_s);
  X509_set_pubkey(certificate, made.key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(terms.common_name.data()),
                             int(terms.common_name.size()), -1, 0);
  X509_set_issuer_name(
      certificate,
      X509_get_subject_name(signer != nullptr ? signer->certificate.get() : certificate));
  if (terms.is_authority) add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE");
  if (terms.usage != nullptr) add_extension(certificate, NID_ext_key_usage, terms.usage);
  if (!terms.names.empty()) add_extension(certificate, NID_subject_alt_name, terms.names.c_str());
  const certified& signing = signer != nullptr ? *signer : made;
  REQUIRE(X509_sign(certificate, signing.key.get(), EVP_sha256()) > 0);
  return made;
}

std::FILE* open_new(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  REQUIRE(file != nullptr);
  return file;
}

}  // namespace

void openssl_free::operator()(evp_pkey_st* key) const noexcept { EVP_PKEY_free(key); }
void openssl_free::operator()(x509_st* certificate) const noexcept { X509_free(certificate); }

void write_pem(const std::string& path, const x509_st* certificate) {
  std::FILE* file = open_new(path);
  CHECK(PEM_write_X509(file, certificate) == 1);
  std::fclose(file);
}

void write_pem(const std::string& path, const evp_pkey_st* key, const char* passphrase) {
  std::FILE* file = open_new(path);
  const int size = passphrase != nullptr ? int(std::strlen(passphrase)) : 0;
  CHECK(PEM_write_PKCS8PrivateKey(file, key, size != 0 ? EVP_aes_128_cbc() : nullptr, passphrase,
                                  size, nullptr, nullptr) == 1);
  std::fclose(file);
}

authority::authority(const char* name)
    : own_{make({.common_name = name, .names = {}, .is_authority = true}, 1, nullptr)} {
  write_pem(authority_path(), own_.certificate.get());
}

certified authority::sign(const certificate_terms& terms, const certified* signer) const {
  return make(terms, long(++made_) + 1, signer != nullptr ? signer : &own_);
}

credentials::certificate_files authority::files(const certificate_terms& terms) const {
  return files(sign(terms));
}

credentials::certificate_files authority::files(const certified& one) const {
  const std::string stem = (folder_.path / std::to_string(++made_)).string();
  write_pem(stem + ".pem", one.certificate.get());
  write_pem(stem + ".key", one.key.get());
  return {.chain = stem + ".pem", .key = stem + ".key", .authorities = authority_path()};
}

credentials authority::issue(const certificate_terms& terms) const {
  return credentials::certificates(files(terms));
}

}  // namespace cordma::test
