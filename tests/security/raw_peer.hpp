#pragma once

#include "security/certificates.hpp"
#include "security/wire.hpp"

#include <openssl/ssl.h>

#include <memory>
#include <string>

namespace cordma::test {

/// A peer that is OpenSSL and nothing else: each test sets it up as wrong as it likes. It verifies
/// nobody, has no key, and asks for cordma's protocol.
class raw_peer {
 public:
  explicit raw_peer(tls_role role);
  ~raw_peer();

  [[nodiscard]] SSL_CTX* context() noexcept { return context_.get(); }
  void set_protocol(const char* name);
  void set_certificate(const credentials::certificate_files& files);
  void set_key(const credentials::psk_key& key);

  /// Shakes hands over this end, and sends its alert if that fails. Then reads until the end.
  task<> run(wire_end& end);
  /// Sends these bytes as data, once `run` has shaken hands.
  void send(wire_end& end, std::span<const std::byte> bytes);

  /// Reads data that came, once `run` has ended.
  std::vector<std::byte> receive(wire_end& end);
  /// Sends nothing but a change of keys, which asks for one in return.
  void send_new_keys(wire_end& end);
  /// The next data uses new keys, and the peer shall do so, too.
  void renew_keys() { SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_REQUESTED); }

  bool has_succeeded = false;
  std::string error;  // OpenSSL's, of the handshake.

 private:
  struct free {
    void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
    void operator()(SSL* ssl) const noexcept { SSL_free(ssl); }
  };
  std::vector<std::byte> output();

  tls_role role_;
  std::unique_ptr<SSL_CTX, free> context_;
  std::unique_ptr<SSL, free> ssl_;
  credentials::psk_key key_{"", {}};
  std::string protocol_;  // An element of ALPN's list.
};

/// One side of ours against a raw one.
struct raw_wire : wire {
  raw_wire(cordma::executor& unused, const credentials& ours, tls_role our_role)
      : wire{unused},
        role{our_role},
        raw{our_role == tls_role::client ? tls_role::server : tls_role::client},
        our_end{our_role == tls_role::client ? client : server},
        raw_end{our_role == tls_role::client ? server : client},
        on_ours{ours, our_end} {}

  void shake_hands(std::string host = "server.example") {
    support::started first{loop.scheduler, one_side(on_ours, role, std::move(host), our_side)};
    support::started second{loop.scheduler, raw.run(raw_end)};
    loop.settle();
    first.request_stop();
    second.request_stop();
    loop.settle();
  }

  tls_role role;
  raw_peer raw;
  wire_end& our_end;
  wire_end& raw_end;
  tls_channel on_ours;
  side_outcome our_side;
};

}  // namespace cordma::test
