#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace softverbs {

inline constexpr std::size_t announced_groups_max = 64;  ///< limit of one datagram

/// A datagram between hosts about groups. Integers are little-endian.
struct announcement {
  enum class kind : std::uint8_t {
    members = 1,  ///< the sending process is a member of these groups
    query,        ///< the sending process asks for members of these groups
  };
  static constexpr std::uint64_t magic_value = 0x7374'7361'6369'746c;  // "lticasts"
  static constexpr std::uint8_t version_value = 1;

  std::uint64_t magic = magic_value;
  std::uint8_t version = version_value;
  kind what{};
  std::uint16_t slot = 0;  ///< slot of the sending process
  std::uint16_t count = 0;
  std::uint16_t reserved = 0;
  union ibv_gid groups[announced_groups_max];

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return std::as_bytes(std::span{this, 1}).first(bytes_of(count));
  }
  static constexpr std::size_t bytes_of(std::size_t groups) noexcept {
    return 16 + groups * sizeof(union ibv_gid);
  }
};
static_assert(sizeof(announcement) == announcement::bytes_of(announced_groups_max));

/// Reads a datagram from anybody. False: some byte of it is wrong, or all of its groups are
/// missing.
[[nodiscard]] bool read(std::span<const std::byte> datagram, announcement& result) noexcept;

}  // namespace softverbs
