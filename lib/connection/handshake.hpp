#pragma once

#include <cordma/base/error.hpp>
#include <cordma/connection/connection_options.hpp>
#include <cordma/detail/base/fixed_text.hpp>
#include <cordma/memory/slice.hpp>
#include <cordma/verbs/gid.hpp>
#include <cordma/verbs/queue_pair_attributes.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

namespace cordma {

/// Messages that two sides exchange before their queue pairs can talk. docs/handshake.md has the
/// bytes. The functions are pure: no I/O, no device. Everything that comes from the peer is checked
/// here.
namespace handshake {

inline constexpr std::uint8_t version_major = 3;  ///< Must be equal on both sides.
inline constexpr std::uint8_t version_minor = 2;  ///< May differ: what is new is in reserved bytes.
inline constexpr std::size_t frame_bytes = 256;   ///< Length of a hello and of a verdict.
inline constexpr std::size_t start_bytes = 32;    ///< Length of a start.
inline constexpr std::size_t preamble_bytes = 8;  ///< Magic, version and length come first.
inline constexpr std::size_t refusal_text_max = 240;

/// Bits of a P_Key that name the partition.
inline constexpr std::uint16_t pkey_partition = 0x7fff;
inline constexpr std::uint16_t pkey_full = 0x8000;  ///< Bit of a P_Key: a full member.

/// Random bytes of one side, which are those of no other handshake.
using nonce = std::array<std::byte, 16>;
/// Bytes of the program's own.
using private_data = std::array<std::byte, 64>;

enum class link_layer : std::uint8_t { infiniband = 1, ethernet = 2 };
enum class transport : std::uint8_t { infiniband = 1, iwarp = 2 };
/// Transport service of the data queue pair (IBTA 9.2.2).
enum class service : std::uint8_t {
  reliable = 0,
  unreliable = 1,
  xrc_initiator = 2,
  xrc_target = 3,
};
const char* to_string(link_layer layer) noexcept;
const char* to_string(transport kind) noexcept;
const char* to_string(service kind) noexcept;
service service_of(verbs::queue_pair_type transport) noexcept;
/// Returns the service that the peer of a side with this one has.
service peer_of(service local) noexcept;

/// Address of one side's agent. Agents of different versions do not talk to each other.
struct agent_address {
  static constexpr std::uint8_t version_ours = 3;
  std::uint32_t qpn = 0;  ///< Control queue pair, 24 bits; 0: there is none.
  std::uint32_t psn = 0;
  std::uint8_t version = version_ours;
  remote_mr_slice flush_word{};  ///< `lending::flush_word`.
};

/// First words, in the clear: what is to follow.
struct start {
  std::uint8_t minor = version_minor;
  std::uint8_t mode = 0;  ///< An `authentication`; the other side's own must be the same.
  handshake::nonce nonce{};
};

/// One side's queue pair, and what its device can do.
struct hello {
  std::uint8_t minor = version_minor;
  transport transport_kind = transport::infiniband;  ///< RoCE uses InfiniBand's.
  link_layer layer = link_layer::ethernet;
  verbs::gid_type gid_kind = verbs::gid_type::roce_v2;
  ibv_mtu mtu = IBV_MTU_1024;  ///< The port's active MTU.
  handshake::service service = service::reliable;
  std::uint16_t lid = 0;  ///< 0 on Ethernet.
  ibv_gid gid{};
  std::uint32_t qpn = 0;  ///< 24 bits.
  std::uint32_t psn = 0;  ///< 24 bits: the first packet that this side sends.
  /// READs and atomics that this side may have in flight, up to 255.
  std::uint32_t rd_atomic_initiator = 0;
  /// READs and atomics that this side serves at once, up to 255.
  std::uint32_t rd_atomic_responder = 0;
  std::uint32_t recv_wr_max = 0;
  bool allows_writes = false;  ///< The peer may write, so its heartbeat can be a WRITE.
  std::uint64_t message_max_bytes = 0;
  agent_address agent{};
  fixed_text<32> library{};  ///< "cordma 0.1.0"; for information.
  handshake::private_data private_data{};
  handshake::nonce nonce{};  ///< The nonce of this side's start; random if it sent none.
  /// P_Key in this side's row of its port's table (`pkey_partition`).
  std::uint16_t pkey = 0xffff;
  fabric_options fabric{};  ///< The values that this side names, not the agreed ones.
};

/// A hello as it came.
struct received_hello : hello {
  std::array<std::byte, frame_bytes> bytes;
};

/// Result of the handshake, as one side tells the other.
struct verdict {
  std::uint8_t code = 0;  ///< 0: accepted; else an `errc`.
  fixed_text<refusal_text_max> text{};
  handshake::nonce of{};  ///< The nonce of the hello that is accepted.

  [[nodiscard]] bool is_accepted() const noexcept { return code == 0; }
  static verdict accepted(const handshake::nonce& of) noexcept { return {.of = of}; }
  static verdict refused(const failure& why) noexcept;
  /// Returns the failure for the side that reads it. A code that a handshake may use is kept; any
  /// other becomes errc::refused. Unprintable characters of the text are replaced.
  [[nodiscard]] failure to_failure() const noexcept;
};

using frame_bytes_t = std::array<std::byte, frame_bytes>;
using start_bytes_t = std::array<std::byte, start_bytes>;
using frame = std::variant<hello, verdict, start>;

frame_bytes_t encode(const hello& h) noexcept;
frame_bytes_t encode(const verdict& v) noexcept;
start_bytes_t encode(const start& s) noexcept;

/// Returns the length of the frame that begins so, `start_bytes` or `frame_bytes`.
/// \errors errc::bad_handshake: the magic (the detail shows what came) or the length is wrong.
///   errc::incompatible_peer: another major version.
std::size_t check_preamble(std::span<const std::byte, preamble_bytes> bytes);
/// \errors as `check_preamble`; errc::bad_handshake: as long as no frame of its kind, an unknown
///   kind, or a field that no device can have; the detail names the field and its value.
frame decode(std::span<const std::byte> bytes);

/// Attributes of one queue pair, including both PSNs.
struct pair_attributes {
  verbs::rtr_attributes rtr{};
  verbs::rts_attributes rts{};
};

/// Attributes of the data queue pair, and of the control queue pair if both sides have an agent.
struct agreement : pair_attributes {
  std::optional<pair_attributes> control{};
};

/// Role of a side: the client proposes some options of the fabric, and the listener decides. Where
/// there is neither, what both sides name must be equal.
enum class side : std::uint8_t { client, listener, equal };

/// Takes the smaller rd_atomic of each direction, and the options of the fabric that the two sides
/// name (`fabric_options`); both sides get the same result. The caller sets retry settings and
/// `min_rnr_timer`. `gid_index` is a row of this side's table; `ours` is this side's role.
/// \errors errc::incompatible_peer: transport, service, link layer, GID type, partition, service
///   level or MTU do not fit, or iWARP; names both values.
agreement negotiate(const hello& local, const hello& remote, std::uint32_t gid_index, side ours);
/// Does the same for an address that is known already. What neither side names is as `peer` says.
agreement negotiate(const hello& local, const hello& remote, const verbs::address_vector& peer,
                    side ours);

/// Returns 24 random bits (`random_bytes`): a PSN that strangers cannot guess. \errors an errno.
std::uint32_t random_psn();
/// Returns random bytes. \errors as `random_bytes`.
nonce random_nonce();

}  // namespace handshake
}  // namespace cordma
