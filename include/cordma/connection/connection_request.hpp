#pragma once

#include <cordma/agent/agent_options.hpp>
#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/io/socket_address.hpp>
#include <cordma/security/credentials.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace cordma {

/// A client that wants a connection, before it gets one.
class CORDMA_EXPORT connection_request {
 public:
  /// Makes what an `admission` is shown.
  connection_request(const socket_address& client, identity client_identity)
      : peer{client}, peer_identity{std::move(client_identity)} {}

  /// Refuses the client, which is told `reason` (at most 200 bytes of it); its `connect` fails with
  /// errc::refused.
  void refuse(std::string_view reason) { refusal_ = reason.empty() ? "no reason given" : reason; }
  /// Returns the reason of a refusal; empty: none.
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }

  socket_address peer;
  identity peer_identity;  ///< Who the client has proved to be.
  /// The client's `connection_options::private_data`.
  std::array<std::byte, 64> private_data{};
  /// This side's answer, which `connection::peer_private_data` gives the client. Initially this
  /// side's `connection_options::private_data`.
  std::array<std::byte, 64> reply{};
  /// What this connection's agent may lend. Initially that of the options, which decide alone on
  /// `isolation_min`, `isolation_max` and `zero_based`.
  lending_policy lending{};

 private:
  std::string refusal_;
};

/// Decides on each client whose hello has come, and may change what the client gets. A function
/// that throws refuses the client, with the text of the exception. \thread the one that makes the
/// connection.
using admission = callback<void(connection_request& request)>;

}  // namespace cordma
