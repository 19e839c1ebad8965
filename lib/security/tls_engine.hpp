#pragma once

#include "handshake_notes.hpp"

#include <cordma/security/credentials.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

struct ssl_st;

namespace cordma {

enum class tls_role : unsigned char { client, server };

/// One side of one TLS 1.3 connection, without input and output: it is fed what the peer sent, and
/// has output for the peer. After an error nothing works any more. \thread one at a time.
class tls_engine {
 public:
  using exported = std::array<std::byte, 32>;
  /// Records without data, such as changes of keys, that a peer may send after its handshake in
  /// all. Each costs time, and a change of keys an answer that waits for room.
  static constexpr unsigned dataless_records_max = 64;

  /// `used` outlives the engine. `host`: the name or address that a client asks for.
  /// \errors EINVAL: certificates, and a client that has no name to ask for.
  tls_engine(const credentials& used, tls_role role, const std::string& host);
  tls_engine(tls_engine&&) = delete;
  ~tls_engine();

  void feed(std::span<const std::byte> records);
  /// Bytes for the peer. The second says how many of them were sent.
  [[nodiscard]] std::span<const std::byte> output() const noexcept;
  void sent(std::size_t bytes) noexcept;

  /// Returns true once the peer is known; false: it waits for bytes of the peer.
  /// \errors errc::not_authenticated, errc::incompatible_peer, errc::bad_handshake.
  bool shake_hands();
  /// The peer, its key or certificate verified.
  [[nodiscard]] const identity& peer() const noexcept { return peer_; }
  /// A secret of this connection, which only both of its sides can make (RFC 8446, 7.5).
  [[nodiscard]] exported export_secret(std::string_view label,
                                       std::span<const std::byte> context) const;

  /// Returns the number of bytes; 0 after the peer's close_notify; nothing: it waits for the peer.
  /// \errors errc::bad_frame: not what the peer sent, or more than `dataless_records_max`.
  ///   errc::not_authenticated: the peer refused this side after its own part of the handshake.
  std::optional<std::size_t> read(std::span<std::byte> into);
  /// Takes bytes, at most those of one record, and returns how many.
  std::size_t write(std::span<const std::byte> from);
  /// Adds close_notify to the output. Nothing is written any more.
  void close() noexcept;

 private:
  struct ssl_free {
    void operator()(ssl_st* ssl) const noexcept;
  };

  void name_peer(const std::string& host);
  [[nodiscard]] std::string missing_proof() const;
  [[noreturn]] void fail_handshake();
  [[noreturn]] void fail_data(const char* call);

  const credentials::contents& used_;
  const tls_role role_;
  bool has_read_ = false;  // Data of the peer's, which has therefore accepted this side.
  unsigned dataless_records_ = 0;
  handshake_notes notes_;
  std::string asked_name_;
  std::unique_ptr<ssl_st, ssl_free> ssl_;
  identity peer_;
};

}  // namespace cordma
