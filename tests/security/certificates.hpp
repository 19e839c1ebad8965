#pragma once

#include "support/temporary_folder.hpp"

#include <cordma/security/credentials.hpp>

#include <memory>
#include <string>

struct evp_pkey_st;
struct x509_st;

namespace cordma::test {

struct openssl_free {
  void operator()(evp_pkey_st* key) const noexcept;
  void operator()(x509_st* certificate) const noexcept;
};

/// A certificate with its key.
struct certified {
  std::unique_ptr<evp_pkey_st, openssl_free> key;
  std::unique_ptr<x509_st, openssl_free> certificate;
};

/// Contents of a certificate; by default, one that is good for a host.
struct certificate_terms {
  std::string common_name = "a cordma test";
  std::string names =
      "DNS:server.example,IP:127.0.0.1";  ///< OpenSSL's subjectAltName; may be empty.
  long begins_s = -3600;                  ///< From now.
  long ends_s = 3600;
  bool is_authority = false;
  const char* usage = nullptr;  ///< Null: any.
  unsigned rsa_bits = 0;        ///< 0: a key on P-256.
};

/// Makes certificates, as files that are gone with it.
class authority {
 public:
  explicit authority(const char* name = "an authority");
  /// Makes a certificate with its key, signed by this authority; by `signer` instead, if given.
  [[nodiscard]] certified sign(const certificate_terms& terms,
                               const certified* signer = nullptr) const;
  /// Writes what `certificates` needs: the certificate, its key, and this authority.
  [[nodiscard]] credentials::certificate_files files(const certificate_terms& terms) const;
  [[nodiscard]] credentials::certificate_files files(const certified& one) const;
  [[nodiscard]] credentials issue(const certificate_terms& terms = {}) const;
  /// The authority's own.
  [[nodiscard]] const certified& own() const noexcept { return own_; }
  [[nodiscard]] std::string authority_path() const { return (folder_.path / "ca.pem").string(); }
  [[nodiscard]] const temporary_folder& folder() const noexcept { return folder_; }

 private:
  temporary_folder folder_;
  certified own_;
  mutable unsigned made_ = 0;
};

void write_pem(const std::string& path, const x509_st* certificate);
void write_pem(const std::string& path, const evp_pkey_st* key, const char* passphrase = nullptr);

}  // namespace cordma::test
