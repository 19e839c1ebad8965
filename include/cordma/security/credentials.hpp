#pragma once

#include <cordma/detail/base/export.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cordma {

/// How the sides of a connection know each other. The numbers go on the wire: 0 to 2 are modes, of
/// which both sides must have the same.
enum class authentication : std::uint8_t {
  none = 0,         ///< Not at all.
  psk = 1,          ///< A pre-shared key, with TLS 1.3.
  certificate = 2,  ///< Certificates of both sides, with TLS 1.3.
  /// The kernel tells who connected to a Unix socket's path or name, or listens there. No mode. A
  /// descriptor that the program hands in gives `none`: the kernel names who made it.
  unix_credentials = 3,
};

/// Tells who is at the other end of a connection.
struct identity {
  identity() noexcept = default;
  identity(authentication by, std::string named) noexcept : kind{by}, name{std::move(named)} {}

  authentication kind = authentication::none;
  /// The id of the peer's key. Of a certificate: the name that was asked for, else its first
  /// subject alternative name (DNS, URI, e-mail, IP), else its common name. Printable.
  std::string name{};
  /// With `unix_credentials`, `pid`, `uid` and `gid` are those of the process that called
  /// connect(2) or listen(2) (SO_PEERCRED, unix(7)).
  std::uint32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};

/// Keys or certificates that a side shows a peer, and asks for. Needs OpenSSL 3. Move-only.
/// \thread any; many connections on many threads use one object, which outlives them.
class CORDMA_EXPORT credentials {
 public:
  /// A secret that two sides share, and the name by which they speak of it. The name is sent in the
  /// clear. Whoever has the secret can connect: make it of 32 random bytes. The bytes are wiped
  /// when the object ends.
  struct CORDMA_EXPORT psk_key {
    psk_key(std::string id, std::vector<std::byte> secret) noexcept;
    psk_key(const psk_key&) = default;
    psk_key(psk_key&&) noexcept = default;
    psk_key& operator=(psk_key other) noexcept;
    ~psk_key();

    std::string id;                 ///< 1 to 64 printable characters.
    std::vector<std::byte> secret;  ///< 16 to 64 bytes.
  };

  /// PEM files for certificates on both sides. They are read once, when the credentials are made.
  struct certificate_files {
    std::string chain;  ///< This side's certificate first, then those of its issuers.
    std::string key;    ///< The certificate's private key, without a passphrase.
    /// Certificates of the authorities that may sign a peer's. The system's are not trusted.
    std::string authorities;
    /// Name or address that the peer's certificate must have, as subject alternative name; no name
    /// of a domain, such as ".example". Empty: who connects asks for the host it connects to; a
    /// listener takes each name.
    std::string peer_name{};
  };

  /// One key, for both directions.
  /// \errors errc::limit_exceeded: the id or the secret is too short or too long; the detail names
  ///   the id, never the secret. errc::not_supported: cordma was built without OpenSSL.
  static credentials psk(psk_key key);
  /// Two keys, to replace one without a pause. Who connects uses `key`; a listener takes both.
  /// \errors as above; EINVAL: both have the same id.
  static credentials psk(psk_key key, psk_key other);
  /// \errors errno values of a file that cannot be read; EINVAL: it has no certificate or key, or
  ///   the key is another certificate's; the detail names the file.
  ///   errc::not_supported: cordma was built without OpenSSL.
  static credentials certificates(const certificate_files& files);

  credentials(credentials&&) noexcept;
  credentials& operator=(credentials&&) noexcept;
  ~credentials();

  [[nodiscard]] authentication kind() const noexcept;

  struct contents;  // Private: lib/security/credentials_contents.hpp.
  [[nodiscard]] const contents& inside() const noexcept { return *contents_; }

 private:
  explicit credentials(std::unique_ptr<const contents> made) noexcept;
  std::unique_ptr<const contents> contents_;
};

}  // namespace cordma
