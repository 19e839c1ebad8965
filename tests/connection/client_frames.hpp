#pragma once

#include "connection/peer_gid.hpp"

#include "connection/handshake.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <vector>

/// The rules of docs/handshake.md for a client's frames, computed apart from the library.
namespace cordma::test {

inline std::uint64_t number(std::span<const std::byte> in, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t n = size; n > 0; --n) value = value << 8 | std::uint64_t(in[at + n - 1]);
  return value;
}

/// The start, the hello and the verdict of a client, one after another. The verdict's nonce is how
/// it differs from the right one.
struct client_frames {
  static constexpr std::size_t hello_at = handshake::start_bytes;
  static constexpr std::size_t verdict_at = hello_at + handshake::frame_bytes;
  using bytes_t = std::array<std::byte, verdict_at + handshake::frame_bytes>;

  client_frames() = default;
  explicit client_frames(const handshake::hello& hello) {
    const auto start = handshake::encode(handshake::start{.nonce = hello.nonce});
    const auto verdict = handshake::encode(handshake::verdict::accepted({}));
    const auto rest = std::ranges::copy(start, bytes.begin()).out;
    std::ranges::copy(verdict, std::ranges::copy(handshake::encode(hello), rest).out);
  }

  [[nodiscard]] std::span<const std::byte> all() const noexcept { return bytes; }
  [[nodiscard]] auto start() const { return all().first<hello_at>(); }
  [[nodiscard]] auto hello() const { return all().subspan<hello_at, handshake::frame_bytes>(); }
  [[nodiscard]] auto verdict() const { return all().subspan<verdict_at>(); }
  [[nodiscard]] auto greeting() const { return all().first<verdict_at>(); }

  client_frames& operator^=(const client_frames& flips) noexcept {
    for (std::size_t n = 0; n < bytes.size(); ++n) bytes[n] ^= flips.bytes[n];
    return *this;
  }
  /// Makes the verdict that of a listener's hello with this nonce.
  void accept(const handshake::nonce& of) noexcept {
    std::ranges::copy(of, bytes.begin() + verdict_at + 16);
  }
  void flip(std::size_t bit) noexcept { bytes[bit / 8] ^= std::byte{1} << bit % 8; }
  /// Returns the bits that are set, as text: the places of flips.
  [[nodiscard]] std::string to_string() const {
    std::string text;
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      if ((bytes[bit / 8] & std::byte{1} << bit % 8) == std::byte{}) continue;
      const std::size_t at = bit / 8;
      const auto [frame, from] = at < hello_at     ? std::pair{"start", std::size_t{0}}
                                 : at < verdict_at ? std::pair{"hello", hello_at}
                                                   : std::pair{"verdict", verdict_at};
      text += std::string{" "} + frame + " byte " + std::to_string(at - from) + " bit " +
              std::to_string(bit % 8);
    }
    return "changed:" + (text.empty() ? " nothing" : text);
  }

  bytes_t bytes{};
};

/// Returns true for bytes that are the program's, for people to read, or reserved.
inline bool is_free(std::size_t at) noexcept {
  if (at < client_frames::hello_at) return false;
  if (at >= client_frames::verdict_at) return at - client_frames::verdict_at >= 32;
  const std::size_t in_hello = at - client_frames::hello_at;
  return (in_hello >= 64 && in_hello < 96) || (in_hello >= 128 && in_hello < 192) ||
         in_hello >= 221;
}

/// No bit, one, or two, mostly of bytes that are not free.
inline client_frames some_flips(std::mt19937_64& random) {
  client_frames flips;
  const std::uint64_t lot = random() % 8;
  const unsigned count = lot == 0 ? 0 : lot < 6 ? 1 : 2;
  const auto any_bit = [&] { return random() % (8 * flips.bytes.size()); };
  for (unsigned n = 0; n < count; ++n) {
    std::size_t bit = any_bit();
    while (is_free(bit / 8) && random() % 8 != 0) bit = any_bit();
    flips.flip(bit);
  }
  return flips;
}

/// The faults of a client that a listener may name.
class faults {
 public:
  void add(bool is_wrong, errc code) {
    if (is_wrong) codes_.push_back(code);
  }
  [[nodiscard]] bool are_none() const noexcept { return codes_.empty(); }
  [[nodiscard]] bool have(std::error_code code) const noexcept {
    return std::ranges::any_of(codes_, [&](errc one) { return code == make_error_code(one); });
  }

 private:
  std::vector<errc> codes_;
};

/// The listener that judges.
struct judge {
  handshake::hello hello;
  socket_address client{};                       ///< Unspecified: one of this host.
  std::optional<std::uint64_t> agent_qpn{};      ///< The agent's in rdma_cm.
  std::optional<std::uint64_t> path_mtu_most{};  ///< The limit of rdma_cm's path, if any.

  [[nodiscard]] bool may_have(const ibv_gid& gid) const {
    if (std::memcmp(gid.raw, hello.gid.raw, sizeof gid.raw) == 0) return true;
    return client.is_loopback() && detail::is_own_address(detail::host_calls::of_kernel(), gid);
  }
};

inline void check_preamble(faults& found, std::span<const std::byte> f, unsigned kind) {
  found.add(std::memcmp(f.data(), "CRMA", 4) != 0, errc::bad_handshake);
  found.add(number(f, 4, 1) != 3, errc::incompatible_peer);
  found.add(number(f, 6, 2) != f.size(), errc::bad_handshake);
  found.add(number(f, 8, 1) != kind, errc::bad_handshake);
}

/// A verdict, or a frame that has become one.
inline void check_refusal(faults& found, std::span<const std::byte> f) {
  const auto code = number(f, 9, 1);
  const bool is_known = code == 1 || code == 15 || code == 16 || code == 33;
  if (number(f, 8, 1) == 2 && code != 0) found.add(true, is_known ? errc(code) : errc::refused);
}

inline void check_start(faults& found, std::span<const std::byte> f) {
  check_preamble(found, f, 3);
  found.add(number(f, 9, 1) != 0, errc::incompatible_peer);
}

struct field_range {
  std::size_t at, size;
  std::uint64_t low, high;
  [[nodiscard]] bool excludes(std::span<const std::byte> f) const {
    const std::uint64_t value = number(f, at, size);
    return value < low || value > high;
  }
};

inline constexpr std::uint64_t max_24_bits = (1u << 24) - 1;
inline constexpr std::uint64_t max_32_bits = UINT32_MAX;
inline constexpr std::array hello_fields{field_range{9, 1, 1, 2},
                                         field_range{10, 1, 0, 2},
                                         field_range{11, 1, 1, 5},
                                         field_range{12, 1, 1, 2},
                                         field_range{13, 1, 0, 3},
                                         field_range{32, 4, 2, max_24_bits},
                                         field_range{36, 4, 0, max_24_bits},
                                         field_range{40, 4, 0, 255},
                                         field_range{44, 4, 0, 255},
                                         field_range{48, 4, 1, max_32_bits},
                                         field_range{56, 8, 1, max_32_bits},
                                         field_range{96, 4, 0, max_24_bits},
                                         field_range{100, 4, 0, max_24_bits}};
/// The bit at 208 that says that the option is there is that of its place in the list.
inline constexpr std::array hello_options{
    field_range{212, 1, 0, 15},  field_range{213, 1, 1, 5},       field_range{214, 1, 0, 255},
    field_range{215, 1, 1, 255}, field_range{216, 4, 0, 0xfffff}, field_range{220, 1, 0, 31}};

inline bool has_option(std::span<const std::byte> f, unsigned option) {
  return (number(f, 208, 2) >> option & 1) != 0;
}
inline bool has_agent(std::span<const std::byte> f) {
  return number(f, 96, 4) != 0 && number(f, 104, 1) == 3;
}
/// The MTU that both sides use.
inline std::uint64_t agreed_mtu(std::span<const std::byte> f, const judge& by) {
  const std::uint64_t most =
      std::min({number(f, 11, 1), std::uint64_t(by.hello.mtu), by.path_mtu_most.value_or(5)});
  return has_option(f, 1) ? number(f, 213, 1) : most;
}

inline void check_hello(faults& found, const client_frames& said, const judge& by) {
  const std::span<const std::byte> f = said.hello();
  check_preamble(found, f, 1);
  check_refusal(found, f);
  for (const field_range& field : hello_fields) found.add(field.excludes(f), errc::bad_handshake);
  for (unsigned n = 0; n < hello_options.size(); ++n)
    found.add(has_option(f, n) && hello_options[n].excludes(f), errc::bad_handshake);
  const auto rate = number(f, 220, 1);
  found.add(has_option(f, 5) && rate != 0 && ibv_rate_to_mbps(ibv_rate(rate)) <= 0,
            errc::bad_handshake);
  const auto partition = number(f, 210, 2);
  found.add((partition & 0x7fff) == 0, errc::bad_handshake);
  found.add(((partition ^ by.hello.pkey) & 0x7fff) != 0, errc::incompatible_peer);
  found.add(((partition | by.hello.pkey) & 0x8000) == 0, errc::incompatible_peer);
  found.add(!std::ranges::equal(f.subspan(192, 16), said.start().subspan(16, 16)),
            errc::bad_handshake);
  ibv_gid gid{};
  std::memcpy(gid.raw, f.data() + 16, sizeof gid.raw);
  found.add(!by.may_have(gid), errc::refused);
  found.add(number(f, 9, 1) != std::uint64_t(by.hello.layer), errc::incompatible_peer);
  found.add(number(f, 10, 1) != std::uint64_t(by.hello.gid_kind), errc::incompatible_peer);
  found.add(number(f, 12, 1) != 1, errc::incompatible_peer);
  found.add(number(f, 13, 1) != std::uint64_t(by.hello.service), errc::incompatible_peer);
  const std::uint64_t mtu_most =
      std::min({number(f, 11, 1), std::uint64_t(by.hello.mtu), by.path_mtu_most.value_or(5)});
  found.add(agreed_mtu(f, by) > mtu_most, errc::incompatible_peer);
  if (by.agent_qpn) {
    found.add(number(f, 96, 4) != *by.agent_qpn, errc::bad_handshake);
    found.add(!has_agent(f), errc::incompatible_peer);
  }
  if (!has_agent(f)) return;
  const bool reads_nothing = number(f, 40, 4) == 0 || number(f, 44, 4) == 0;
  found.add(reads_nothing, errc::incompatible_peer);
  found.add(number(f, 120, 4) == 0, errc::bad_handshake);
}

/// Returns the faults that `by` may name of a client that said this; wrong bits add up.
inline faults faults_of(const client_frames& said, const judge& by) {
  faults found;
  check_start(found, said.start());
  if (found.are_none()) check_hello(found, said, by);
  if (!found.are_none()) return found;
  check_preamble(found, said.verdict(), 2);
  check_refusal(found, said.verdict());
  const auto nonce = said.verdict().subspan(16, 16);
  found.add(std::ranges::any_of(nonce, [](std::byte b) { return b != std::byte{0}; }),
            errc::bad_handshake);
  return found;
}

/// A hello as its receiver understands it: without what is reserved, and with text that prints.
inline handshake::frame_bytes_t meaning_of(std::span<const std::byte> hello) {
  handshake::frame_bytes_t f;
  std::ranges::copy(hello, f.begin());
  const auto clear = [&](std::size_t at, std::size_t size) {
    std::fill_n(f.begin() + std::ptrdiff_t(at), size, std::byte{0});
  };
  f[5] = std::byte{handshake::version_minor};
  f[52] &= std::byte{1};
  f[208] &= std::byte{0x3f};
  for (const auto& [at, size] : {std::pair{53u, 3u}, {105, 3}, {124, 4}, {209, 1}, {221, 35}})
    clear(at, size);
  for (unsigned n = 0; n < hello_options.size(); ++n)
    if (!has_option(f, n)) clear(hello_options[n].at, hello_options[n].size);
  bool has_ended = false;
  for (std::size_t n = 64; n < 96; ++n) {
    has_ended = has_ended || f[n] == std::byte{0};
    const bool prints = f[n] >= std::byte{' '} && f[n] <= std::byte{'~'};
    if (has_ended)
      f[n] = std::byte{0};
    else if (!prints)
      f[n] = std::byte{'?'};
  }
  return f;
}

}  // namespace cordma::test
