#pragma once

#include "security/certificates.hpp"

#include <cordma/security/credentials.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace cordma::test {

inline credentials key_named(const std::string& id, unsigned char fill = 7) {
  return credentials::psk({id, std::vector(32, std::byte{fill})});
}

/// Proofs of two sides: none, a key that both have, or a certificate each.
class proofs {
 public:
  /// `where`: an address that the server's certificate has, too.
  explicit proofs(const std::string& where = "127.0.0.1")
      : key_{key_named("db-1")},
        server_{credentials::certificates(
            ca_.files({.names = "DNS:server.example,IP:127.0.0.1,IP:" + where}))},
        client_{credentials::certificates(ca_.files({.names = "DNS:client.example"}))},
        named_client_{credentials::certificates(asking_for_server())} {}

  /// `has_host`: the client connects to a host, whose name it asks for.
  [[nodiscard]] const credentials* of_client(authentication by, bool has_host) const noexcept {
    if (by == authentication::psk) return &key_;
    if (by == authentication::certificate) return has_host ? &client_ : &named_client_;
    return nullptr;
  }
  [[nodiscard]] const credentials* of_server(authentication by) const noexcept {
    if (by == authentication::psk) return &key_;
    return by == authentication::certificate ? &server_ : nullptr;
  }
  [[nodiscard]] const authority& ca() const noexcept { return ca_; }

 private:
  [[nodiscard]] credentials::certificate_files asking_for_server() const {
    credentials::certificate_files files = ca_.files({.names = "DNS:client.example"});
    files.peer_name = "server.example";
    return files;
  }

  authority ca_;
  credentials key_;
  credentials server_;
  credentials client_;
  credentials named_client_;
};

}  // namespace cordma::test
