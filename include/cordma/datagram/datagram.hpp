#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/queue/message.hpp>
#include <cordma/verbs/queue_pair_attributes.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace cordma {

/// Address of a datagram socket, or of a multicast group: a port, a queue pair's number and its
/// Q_Key. A value; a program moves it as text, as bytes, or learns it from a datagram.
struct CORDMA_EXPORT datagram_address {
  static constexpr std::size_t encoded_bytes = 32;
  static constexpr std::uint32_t multicast_qpn = 0xffffff;  ///< IBTA 10.5.1.
  /// The Q_Key that rdma_cm tells of for every address of IP (RDMA_UDP_QKEY).
  static constexpr std::uint32_t rdma_cm_qkey = 0x01234567;

  /// The path there. `gid_index` means nothing: it is a row of the sender's own table, and the
  /// sending socket has one. Text and bytes leave out hop limit, flow label and rate.
  verbs::address_vector path{};
  std::uint32_t qpn = 0;  ///< 24 bits.
  std::uint32_t qkey = 0;

  /// Reads what `to_string` returns: "qpn=17,qkey=0x11111111,gid=fe80::1"; also "lid=", "sl=" and
  /// "tc=", in any order. \errors EINVAL: the detail names the field and what it takes.
  static datagram_address parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;

  /// Returns the address for the wire, little-endian.
  [[nodiscard]] std::array<std::byte, encoded_bytes> encode() const noexcept;
  /// \errors errc::wrong_length: `bytes` are not `encoded_bytes`; EINVAL: a field is out of range.
  static datagram_address decode(std::span<const std::byte> bytes);

  friend bool operator==(const datagram_address& a, const datagram_address& b) noexcept {
    return a.encode() == b.encode();
  }
};

/// A datagram that was received. Its bytes are those of the message.
struct datagram : message {
  /// Address for an answer. Its Q_Key is this socket's: a datagram does not name its sender's.
  /// Empty if the datagram names a multicast group as its source: no answer can be sent.
  datagram_address sender{};
  bool was_multicast = false;  ///< The datagram was sent to a group.
};

}  // namespace cordma
