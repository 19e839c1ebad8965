#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace doctor {

/// Asks the kernel which priorities of an interface have PFC (IEEE 802.1Qbb, rtnetlink(7),
/// RTM_GETDCB). Returns one bit for each; none: the interface does not tell.
std::optional<std::uint8_t> read_pfc(const std::string& netdev);

/// Reads the kernel's answer. Returns none for an error, or an answer without PFC.
std::optional<std::uint8_t> parse_pfc(std::span<const std::byte> answer) noexcept;

}  // namespace doctor
