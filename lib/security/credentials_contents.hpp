#pragma once

#include <cordma/security/credentials.hpp>

#include <memory>
#include <string>
#include <vector>

// OpenSSL's types, which its own headers define: only two sources include those.
struct ssl_ctx_st;
struct ssl_st;

namespace cordma {

struct ssl_ctx_free {
  void operator()(ssl_ctx_st* context) const noexcept;
};

/// The part of credentials that the handshakes of all connections share. It does not change once it
/// is made.
struct credentials::contents {
  authentication kind = authentication::none;
  /// One or two keys. Behind them comes a random one, which a peer with an unknown id meets. Its
  /// handshake fails as with a wrong secret, and takes as long.
  std::vector<psk_key> keys;
  certificate_files files;
  std::unique_ptr<ssl_ctx_st, ssl_ctx_free> context;
};

/// Makes `made.context` of the rest, and the random key. \errors as `credentials`.
void make_tls_context(credentials::contents& made);

}  // namespace cordma
