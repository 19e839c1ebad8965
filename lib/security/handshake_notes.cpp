#include "handshake_notes.hpp"

#include "base/failures.hpp"

#include <algorithm>

namespace cordma {
namespace {

using detail::detail_text;
using finding = handshake_notes::finding;

errc code_of(finding found) noexcept {
  switch (found) {
    case finding::old_version:
    case finding::other_protocol:
    case finding::nothing_common: return errc::incompatible_peer;
    case finding::no_tls: return errc::bad_handshake;
    default: return errc::not_authenticated;
  }
}

fixed_text<240> explain_key(const handshake_notes& notes, const credentials::contents& used) {
  const bool is_known = notes.key + 1 < used.keys.size();
  if (is_known) {
    return detail_text("the peer has another secret for the key '%s': give both sides the same",
                       notes.key_id.c_str());
  }
  const bool has_two = used.keys.size() > 2;
  return detail_text("the peer's key '%s' is none of this side's, which are '%s'%s%s%s",
                     notes.key_id.c_str(), used.keys[0].id.c_str(), has_two ? " and '" : "",
                     has_two ? used.keys[1].id.c_str() : "", has_two ? "'" : "");
}

fixed_text<240> explain_certificate(const handshake_notes& notes, const credentials::contents& used,
                                    const std::string& asked) {
  const char* subject = notes.subject.c_str();
  switch (notes.found) {
    case finding::expired:
      return detail_text("the peer's certificate (%s) expired on %s by this host's clock: renew it",
                         subject, notes.valid.c_str());
    case finding::not_yet_valid:
      return detail_text(
          "the peer's certificate (%s) is valid from %s, which this host's clock "
          "has not reached: compare the clocks",
          subject, notes.valid.c_str());
    case finding::unknown_authority:
      return detail_text("no authority in %.60s vouches for the peer's certificate (%s): %s",
                         used.files.authorities.c_str(), subject, notes.why.c_str());
    case finding::wrong_name:
      return detail_text(
          "the peer's certificate is for '%s', not for '%.60s': connect by a name "
          "it has, or set certificate_files::peer_name",
          notes.names.c_str(), asked.c_str());
    default: return detail_text("the peer's certificate (%s): %s", subject, notes.why.c_str());
  }
}

fixed_text<240> explain_rest(const handshake_notes& notes) {
  switch (notes.found) {
    case finding::no_certificate: return "the peer has no certificate: give it certificate_files";
    case finding::no_key:
      return "the peer offers no key with key exchange: does it use certificates?";
    case finding::old_version:
      return detail_text("the peer does not speak TLS 1.3 (%s)", notes.why.c_str());
    case finding::other_protocol:
      return "the peer does not speak cordma/1 within TLS (ALPN): it is no cordma";
    case finding::nothing_common:
      return detail_text("both sides' TLS have nothing in common: %s; compare their openssl.cnf",
                         notes.why.c_str());
    case finding::refused: return detail_text("the peer refused this side: %s", notes.why.c_str());
    default: return detail_text("%s: this is no TLS, or was changed on its way", notes.why.c_str());
  }
}

}  // namespace

std::string printable(std::string text, std::size_t bytes_max) {
  if (text.size() > bytes_max) text.replace(bytes_max - 3, std::string::npos, "...");
  std::ranges::replace_if(text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

failure explain(const handshake_notes& notes, const credentials::contents& used,
                const std::string& asked) noexcept {
  failure f{.code = code_of(notes.found), .call = "TLS handshake"};
  const bool is_of_certificate =
      notes.found >= finding::expired && notes.found <= finding::bad_certificate;
  if (notes.found == finding::wrong_key) {
    f.detail = explain_key(notes, used);
  } else if (!is_of_certificate) {
    f.detail = explain_rest(notes);
  } else if (used.kind == authentication::psk) {
    f.detail =
        "the peer answers with a certificate and does not use the key: no side chooses "
        "for the other, give both the same kind of credentials";
  } else {
    f.detail = explain_certificate(notes, used, asked);
  }
  return f;
}

}  // namespace cordma
