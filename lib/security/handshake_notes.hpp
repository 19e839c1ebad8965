#pragma once

#include "credentials_contents.hpp"

#include <cordma/base/error.hpp>

#include <cstddef>
#include <string>

namespace cordma {

/// Findings about the peer in one handshake. OpenSSL's callbacks note them, because its error codes
/// say too little. Texts that come from the peer are printable here.
struct handshake_notes {
  enum class finding : unsigned char {
    none,
    // The peer's certificate.
    expired,
    not_yet_valid,
    unknown_authority,
    wrong_name,
    bad_certificate,
    no_certificate,
    // The peer's key does not fit.
    no_key,
    wrong_key,
    // The peer speaks another protocol.
    old_version,
    other_protocol,
    nothing_common,
    no_tls,
    // The peer has found something about this side, and ended the handshake.
    refused,
  };

  finding found = finding::none;
  std::string why;  // OpenSSL's text.

  // Keys, on the side that listens.
  std::string key_id;   // The peer's first.
  std::size_t key = 0;  // Index of the peer's key, or of the random key if this id is unknown.
  bool was_key_offered = false;

  // Names the wrong certificate in the peer's chain.
  std::string subject;
  std::string names;  // The names that it is made for: "DNS:a.example, IP Address:10.0.0.1".
  std::string valid;  // First or last moment of the certificate, whichever is wrong.
};

/// Shortens text of a peer, and replaces what does not print: it ends up in logs and on terminals.
std::string printable(std::string text, std::size_t bytes_max);

/// Returns why the handshake failed, and the way out. This side's text names all; the peer is told
/// none of it. `asked`: the name that the peer's certificate must have, if any.
failure explain(const handshake_notes& notes, const credentials::contents& used,
                const std::string& asked) noexcept;

}  // namespace cordma
