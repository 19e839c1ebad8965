#include "connection/handshake.hpp"

#include "base/little_endian.hpp"
#include "base/random.hpp"
#include "verbs/gid.hpp"
#include "verbs/queue_pair_attributes.hpp"

#include <cordma/version.hpp>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace cordma::handshake {
namespace {

constexpr std::uint32_t magic = 0x414d5243;  // "CRMA"
constexpr std::uint32_t max_24_bits = (1u << 24) - 1;
constexpr std::uint32_t rd_atomic_limit = 255;  // 8 bits in ibv_qp_attr.

enum class kind : std::uint8_t { hello = 1, verdict = 2, start = 3 };

// Offsets of the fields that are no numbers in a range; docs/handshake.md says the same in words.
namespace at {
constexpr std::size_t magic = 0, major = 4, minor = 5, length = 6, kind = 8;
constexpr std::size_t gid = 16, flags = 52, library = 64;
constexpr std::size_t flush_rkey = 108, flush_address = 112, flush_length = 120;
constexpr std::size_t private_data = 128, nonce = 192;
constexpr std::size_t options_set = 208, pkey = 210;
constexpr std::size_t code = 9, text = 16;
constexpr std::size_t mode = 9, start_nonce = 16;
}  // namespace at
constexpr std::size_t library_bytes = 32;
constexpr std::uint32_t flag_allows_writes = 1;

using bytes = std::span<const std::byte>;

template <std::size_t N, class T>
void put(std::array<std::byte, N>& out, std::size_t offset, T value) noexcept {
  little_endian::put(out.data() + offset, value);
}

template <std::size_t N, std::size_t Size>
void put(std::array<std::byte, N>& out, std::size_t offset,
         const std::array<std::byte, Size>& value) noexcept {
  std::copy(value.begin(), value.end(), out.begin() + offset);
}

template <class T>
T get(bytes in, std::size_t offset) noexcept {
  return little_endian::get<T>(in.data() + offset);
}

template <std::size_t Size>
std::array<std::byte, Size> get_bytes(bytes in, std::size_t offset) noexcept {
  std::array<std::byte, Size> value;
  std::copy_n(in.begin() + std::ptrdiff_t(offset), Size, value.begin());
  return value;
}

void put_text(frame_bytes_t& out, std::size_t offset, std::string_view text) noexcept {
  std::memcpy(out.data() + offset, text.data(), text.size());
}

/// Takes text up to the first NUL, and replaces what does not print: a peer's text ends up in logs
/// and on terminals.
template <std::size_t N>
fixed_text<N> get_text(bytes in, std::size_t offset) noexcept {
  std::array<char, N> text;
  std::size_t size = 0;
  for (; size < N && in[offset + size] != std::byte{0}; ++size) {
    const char c = char(in[offset + size]);
    text[size] = c >= ' ' && c <= '~' ? c : '?';
  }
  return std::string_view{text.data(), size};
}

[[gnu::format(printf, 2, 3)]] [[noreturn]] void fail(errc code, const char* format, ...) {
  char text[240];
  va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  throw error{{.code = code, .call = "handshake", .detail = text}};
}

template <class Bytes = frame_bytes_t>
Bytes begin(kind k) noexcept {
  Bytes out{};
  put(out, at::magic, magic);
  put(out, at::major, version_major);
  put(out, at::minor, version_minor);
  put(out, at::length, std::uint16_t(out.size()));
  put(out, at::kind, std::uint8_t(k));
  return out;
}

constexpr auto on_wire(auto value) noexcept {
  if constexpr (std::is_same_v<decltype(value), ibv_mtu> ||
                std::is_same_v<decltype(value), ibv_rate>)
    return std::uint8_t(value);
  else if constexpr (std::is_enum_v<decltype(value)>)
    return std::underlying_type_t<decltype(value)>(value);
  else
    return value;
}

/// Calls `with(name, offset, member, low, high)` for each number that must lie in [low, high].
void each_number(auto& h, auto with) {
  with("link layer", 9, h.layer, 1, 2);
  with("GID type", 10, h.gid_kind, 0, 2);
  with("MTU", 11, h.mtu, IBV_MTU_256, IBV_MTU_4096);
  with("transport", 12, h.transport_kind, 1, 2);
  with("service", 13, h.service, 0, 3);
  with("LID", 14, h.lid, 0, UINT16_MAX);
  with("QPN", 32, h.qpn, 2, max_24_bits);  // QPNs 0 and 1 are for management.
  with("PSN", 36, h.psn, 0, max_24_bits);
  with("rd_atomic (initiator)", 40, h.rd_atomic_initiator, 0, rd_atomic_limit);
  with("rd_atomic (responder)", 44, h.rd_atomic_responder, 0, rd_atomic_limit);
  with("receive depth", 48, h.recv_wr_max, 1, UINT32_MAX);
  with("message limit", 56, h.message_max_bytes, 1, UINT32_MAX);
  with("agent's QPN", 96, h.agent.qpn, 0, max_24_bits);
  with("agent's PSN", 100, h.agent.psn, 0, max_24_bits);
  with("agent's version", 104, h.agent.version, 0, UINT8_MAX);
}

/// Calls `with(flag, name, offset, member, low, high)` for each option of the fabric. The receiver
/// reads an option if its flag is set.
void each_option(auto& fabric, auto with) {
  constexpr unsigned rate_limit = 31;  // An ibv_rate can hold no more.
  with(1u << 0, "service level", 212, fabric.service_level, 0, verbs::service_level_limit);
  with(1u << 1, "wanted MTU", 213, fabric.mtu, IBV_MTU_256, IBV_MTU_4096);
  with(1u << 2, "traffic class", 214, fabric.traffic_class, 0, UINT8_MAX);
  with(1u << 3, "hop limit", 215, fabric.hop_limit, 1, UINT8_MAX);
  with(1u << 4, "flow label", 216, fabric.flow_label, 0, verbs::flow_label_limit);
  with(1u << 5, "static rate", 220, fabric.static_rate, 0, rate_limit);
}

template <class T>
T get_number(bytes in, const char* name, std::size_t offset, std::uint64_t low,
             std::uint64_t high) {
  const auto value = get<decltype(on_wire(T{}))>(in, offset);
  if (value < low || value > high) {
    fail(errc::bad_handshake, "%s %llu is not between %llu and %llu", name,
         static_cast<unsigned long long>(value), static_cast<unsigned long long>(low),
         static_cast<unsigned long long>(high));
  }
  return T(value);
}

fabric_options decode_options(bytes in) {
  fabric_options fabric;
  const auto set = get<std::uint16_t>(in, at::options_set);
  each_option(fabric, [&](unsigned flag, const char* name, std::size_t offset, auto& option,
                          std::uint64_t low, std::uint64_t high) {
    using T = typename std::remove_reference_t<decltype(option)>::value_type;
    if ((set & flag) != 0) option = get_number<T>(in, name, offset, low, high);
  });
  if (fabric.static_rate && !verbs::is_rate(*fabric.static_rate))
    fail(errc::bad_handshake, "static rate %u is no ibv_rate", unsigned(*fabric.static_rate));
  return fabric;
}

void encode_options(frame_bytes_t& out, const fabric_options& fabric) noexcept {
  unsigned set = 0;
  each_option(fabric, [&](unsigned flag, const char*, std::size_t offset, const auto& option,
                          std::uint64_t, std::uint64_t) {
    if (!option) return;
    set |= flag;
    put(out, offset, on_wire(*option));
  });
  put(out, at::options_set, std::uint16_t(set));
}

hello decode_hello(bytes in) {
  hello h;
  h.minor = get<std::uint8_t>(in, at::minor);
  each_number(h, [&](const char* name, std::size_t offset, auto& member, std::uint64_t low,
                     std::uint64_t high) {
    using T = std::remove_reference_t<decltype(member)>;
    member = get_number<T>(in, name, offset, low, high);
  });
  std::memcpy(h.gid.raw, in.data() + at::gid, sizeof h.gid.raw);
  // Unknown bits belong to a later minor version.
  h.allows_writes = (get<std::uint32_t>(in, at::flags) & flag_allows_writes) != 0;
  h.library = get_text<library_bytes>(in, at::library);
  h.agent.flush_word = {get<std::uint64_t>(in, at::flush_address),
                        get<std::uint32_t>(in, at::flush_length),
                        get<std::uint32_t>(in, at::flush_rkey)};
  h.private_data = get_bytes<sizeof h.private_data>(in, at::private_data);
  h.nonce = get_bytes<sizeof h.nonce>(in, at::nonce);
  h.fabric = decode_options(in);
  h.pkey = get<std::uint16_t>(in, at::pkey);
  if ((h.pkey & pkey_partition) == 0)
    fail(errc::bad_handshake, "P_Key 0x%04x is of no partition", unsigned{h.pkey});

  const bool has_gid = !verbs::same_gid(h.gid, {});
  if (h.layer == link_layer::ethernet && !has_gid) {
    fail(errc::bad_handshake, "a zero GID on an Ethernet port");
  }
  if (h.layer == link_layer::infiniband && !has_gid && h.lid == 0) {
    fail(errc::bad_handshake, "neither a LID nor a GID");
  }
  return h;
}

verdict decode_verdict(bytes in) {
  verdict v{.code = get<std::uint8_t>(in, at::code)};
  if (v.is_accepted())
    v.of = get_bytes<sizeof v.of>(in, at::text);
  else
    v.text = get_text<refusal_text_max>(in, at::text);
  return v;
}

/// Returns true for a code that a refusal may carry: any other would let a peer fake a local error.
bool is_of_a_handshake(errc code) noexcept {
  return code == errc::bad_handshake || code == errc::incompatible_peer ||
         code == errc::timed_out || code == errc::not_authenticated;
}

}  // namespace

const char* to_string(link_layer layer) noexcept {
  return layer == link_layer::ethernet ? "Ethernet" : "InfiniBand";
}

const char* to_string(transport kind) noexcept {
  return kind == transport::iwarp ? "iWARP" : "InfiniBand";
}

const char* to_string(service kind) noexcept {
  switch (kind) {
    case service::unreliable: return "UC";
    case service::xrc_initiator: return "XRC initiator";
    case service::xrc_target: return "XRC target";
    default: return "RC";
  }
}

verdict verdict::refused(const failure& why) noexcept {
  const bool is_ours = why.code.category() == error::category();
  const errc code = is_ours ? errc(why.code.value()) : errc::refused;
  verdict v{.code = std::uint8_t(is_of_a_handshake(code) ? code : errc::refused)};
  v.text = why.detail.empty() ? std::string_view{why.call} : why.detail.view();
  // The peer must not learn which part of its key or certificate was wrong.
  if (why.code == errc::not_authenticated) v.text = "your key or certificate does not fit";
  return v;
}

failure verdict::to_failure() const noexcept {
  const errc known = is_of_a_handshake(errc{code}) ? errc{code} : errc::refused;
  char detail[160];
  std::snprintf(detail, sizeof detail, "the peer says: %.*s", int(text.view().size()),
                text.view().data());
  return {.code = known, .call = "handshake", .detail = detail};
}

frame_bytes_t encode(const hello& h) noexcept {
  frame_bytes_t out = begin(kind::hello);
  each_number(h, [&](const char*, std::size_t offset, const auto& member, std::uint64_t,
                     std::uint64_t) { put(out, offset, on_wire(member)); });
  std::memcpy(out.data() + at::gid, h.gid.raw, sizeof h.gid.raw);
  put(out, at::flags, h.allows_writes ? flag_allows_writes : 0u);
  put_text(out, at::library, h.library.view());
  put(out, at::flush_rkey, h.agent.flush_word.rkey());
  put(out, at::flush_address, h.agent.flush_word.address());
  put(out, at::flush_length, std::uint32_t(h.agent.flush_word.size_bytes()));
  put(out, at::private_data, h.private_data);
  put(out, at::nonce, h.nonce);
  put(out, at::pkey, h.pkey);
  encode_options(out, h.fabric);
  return out;
}

start_bytes_t encode(const start& s) noexcept {
  auto out = begin<start_bytes_t>(kind::start);
  put(out, at::mode, s.mode);
  put(out, at::start_nonce, s.nonce);
  return out;
}

frame_bytes_t encode(const verdict& v) noexcept {
  frame_bytes_t out = begin(kind::verdict);
  put(out, at::code, v.code);
  if (v.is_accepted())
    put(out, at::text, v.of);
  else
    put_text(out, at::text, v.text.view());
  return out;
}

std::size_t check_preamble(std::span<const std::byte, preamble_bytes> in) {
  if (get<std::uint32_t>(in, at::magic) != magic) {
    fail(errc::bad_handshake,
         "it begins with the bytes %02x %02x %02x %02x, a cordma handshake with 43 52 4d 41: "
         "another "
         "program's port?",
         unsigned(in[0]), unsigned(in[1]), unsigned(in[2]), unsigned(in[3]));
  }
  const auto major = get<std::uint8_t>(in, at::major);
  if (major != version_major) {
    fail(errc::incompatible_peer,
         "the peer speaks handshake version %u.%u, we %u.%u: use the same major version on both",
         unsigned{major}, unsigned{get<std::uint8_t>(in, at::minor)}, unsigned{version_major},
         unsigned{version_minor});
  }
  const auto length = get<std::uint16_t>(in, at::length);
  if (length != frame_bytes && length != start_bytes) {
    fail(errc::bad_handshake, "a frame of %u bytes, %zu or %zu are right", unsigned{length},
         start_bytes, frame_bytes);
  }
  return length;
}

frame decode(std::span<const std::byte> in) {
  if (in.size() < preamble_bytes || check_preamble(in.first<preamble_bytes>()) != in.size())
    fail(errc::bad_handshake, "a frame that is cut after %zu bytes", in.size());
  const bool is_start = in.size() == start_bytes;
  switch (const auto k = get<std::uint8_t>(in, at::kind); kind{k}) {
    case kind::hello:
      if (!is_start) return decode_hello(in);
      break;
    case kind::verdict:
      if (is_start) break;
      return decode_verdict(in);
    case kind::start:
      if (!is_start) break;
      return start{.minor = get<std::uint8_t>(in, at::minor),
                   .mode = get<std::uint8_t>(in, at::mode),
                   .nonce = get_bytes<sizeof(nonce)>(in, at::start_nonce)};
    default:
      fail(errc::bad_handshake, "frame kind %u is none of 1 (hello), 2 (verdict), 3 (start)",
           unsigned{k});
  }
  fail(errc::bad_handshake, "a frame of %zu bytes, which its kind %u never has", in.size(),
       unsigned{get<std::uint8_t>(in, at::kind)});
}

std::uint32_t random_psn() { return detail::random_value<std::uint32_t>() & max_24_bits; }

nonce random_nonce() { return detail::random_value<nonce>(); }

}  // namespace cordma::handshake
