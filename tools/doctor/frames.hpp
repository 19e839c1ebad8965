#pragma once

#include "attempt.hpp"

#include <cordma/rpc/codec.hpp>
#include <cordma/rpc/method.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace doctor {

/// The purpose of a connection to a server, as the client's private data say it.
struct purpose {
  /// No operation: calls, such as `outcome_of`.
  std::optional<doctor::operation> op{};
  /// The server acts, and the client answers.
  bool server_acts = false;
  /// Number under which the server keeps the outcome of what it did.
  std::uint64_t number = 0;
};
using private_data = std::array<std::byte, 64>;

private_data encode(const purpose& p) noexcept;
/// Returns none for private data of another program, or of another version.
std::optional<purpose> decode(const private_data& data) noexcept;

/// Asks for what the server did on the connection of that number. The reply is an encoded
/// `outcome`.
struct outcome_of : cordma::rpc::method<"doctor.outcome", std::uint64_t, std::string> {};
/// Asks for the server's device, as text for people.
struct device_of : cordma::rpc::method<"doctor.device", cordma::rpc::nothing, std::string> {};

enum class outcome_kind : std::uint8_t { success, not_there, failure };
struct outcome {
  outcome_kind kind = outcome_kind::failure;
  std::string text{};
};
/// Returns "+" and what is worth knowing, "=" and what the device lacks, or "-" and why it failed.
std::string encode(const outcome& o);
outcome decode_outcome(std::string_view text);

/// Awaits `act`, and gives what became of it. A stop is thrown.
cordma::task<outcome> outcome_of_act(cordma::runtime& rt, cordma::connection conn, operation op);

inline constexpr std::uint16_t port_default = 7472;

}  // namespace doctor
