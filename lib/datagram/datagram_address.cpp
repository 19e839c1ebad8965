#include "datagram_address.hpp"

#include "base/failures.hpp"
#include "base/little_endian.hpp"

#include <cordma/verbs/gid.hpp>

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace cordma {
namespace {

namespace le = little_endian;
using detail::detail_text;

constexpr std::uint32_t qpn_max = 0xffffff;
constexpr std::uint8_t service_level_max = 15;

// Offsets of the encoded fields; the rest is zero.
constexpr std::size_t at_gid = 0, at_qpn = 16, at_qkey = 20, at_lid = 24, at_flags = 26,
                      at_service_level = 27, at_traffic_class = 28;
constexpr std::byte is_global{1};

[[noreturn]] void refuse(const char* call, fixed_text<240> why) {
  throw error{errno_failure(EINVAL, call, {}, why)};
}

}  // namespace

void check(const datagram_address& a, const char* call) {
  if (a.qpn > qpn_max) refuse(call, detail_text("qpn %u is above %u", a.qpn, qpn_max));
  if (a.path.service_level > service_level_max)
    refuse(call, detail_text("sl %u is above %u", unsigned{a.path.service_level},
                             unsigned{service_level_max}));
  if (!a.path.is_global && a.path.lid == 0) refuse(call, "neither a gid nor a lid");
}

namespace {

constexpr const char* call_of_parse = "datagram_address::parse";

std::uint32_t number_in(std::string_view field, std::string_view text, std::uint32_t most) {
  const bool is_hex = text.starts_with("0x");
  const std::string_view digits = is_hex ? text.substr(2) : text;
  std::uint32_t value = 0;
  const auto [end, failed] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, is_hex ? 16 : 10);
  if (failed == std::errc{} && end == digits.data() + digits.size() && value <= most) return value;
  refuse(call_of_parse,
         detail_text("%.*s=%.*s: a number from 0 to %u", int(field.size()), field.data(),
                     int(std::min<std::size_t>(text.size(), 60)), text.data(), most));
}

ibv_gid gid_in(std::string_view text) {
  const std::string address{text};
  ibv_gid gid{};
  if (::inet_pton(AF_INET6, address.c_str(), gid.raw) == 1) return gid;
  refuse(call_of_parse, detail_text("gid=%.100s: an IPv6 address, as fe80::1 or ::ffff:10.0.0.1",
                                    address.c_str()));
}

}  // namespace

datagram_address datagram_address::parse(std::string_view text) {
  datagram_address made;
  bool has_qpn = false;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view field = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(field.size() + 1, rest.size()));
    const std::size_t equals = field.find('=');
    const std::string_view name = field.substr(0, equals);
    const std::string_view value = equals == field.npos ? "" : field.substr(equals + 1);
    if (name == "qpn") {
      made.qpn = number_in(name, value, qpn_max);
      has_qpn = true;
    } else if (name == "qkey") {
      made.qkey = number_in(name, value, UINT32_MAX);
    } else if (name == "gid") {
      made.path.gid = gid_in(value);
      made.path.is_global = true;
    } else if (name == "lid") {
      made.path.lid = std::uint16_t(number_in(name, value, UINT16_MAX));
    } else if (name == "sl") {
      made.path.service_level = std::uint8_t(number_in(name, value, service_level_max));
    } else if (name == "tc") {
      made.path.traffic_class = std::uint8_t(number_in(name, value, UINT8_MAX));
    } else {
      refuse(call_of_parse, detail_text("'%.*s': the fields are qpn, qkey, gid, lid, sl and tc",
                                        int(std::min<std::size_t>(name.size(), 100)), name.data()));
    }
  }
  if (!has_qpn) refuse(call_of_parse, "no qpn; write qpn=17,qkey=0x11111111,gid=fe80::1");
  check(made, call_of_parse);
  return made;
}

std::string datagram_address::to_string() const {
  fixed_text<240> text = detail_text("qpn=%u,qkey=0x%x", qpn, qkey);
  std::string made{text.view()};
  if (path.is_global) made.append(",gid=").append(verbs::to_string(path.gid));
  if (path.lid != 0) made.append(",lid=").append(std::to_string(path.lid));
  if (path.service_level != 0) made.append(",sl=").append(std::to_string(path.service_level));
  if (path.traffic_class != 0) made.append(",tc=").append(std::to_string(path.traffic_class));
  return made;
}

std::array<std::byte, datagram_address::encoded_bytes> datagram_address::encode() const noexcept {
  std::array<std::byte, encoded_bytes> out{};
  if (path.is_global) std::memcpy(&out[at_gid], path.gid.raw, sizeof path.gid.raw);
  le::put(&out[at_qpn], qpn);
  le::put(&out[at_qkey], qkey);
  le::put(&out[at_lid], path.lid);
  out[at_flags] = path.is_global ? is_global : std::byte{};
  out[at_service_level] = std::byte{path.service_level};
  out[at_traffic_class] = std::byte{path.traffic_class};
  return out;
}

datagram_address datagram_address::decode(std::span<const std::byte> bytes) {
  constexpr const char* call = "datagram_address::decode";
  if (bytes.size() != encoded_bytes) {
    detail::throw_failure(
        errc::wrong_length, call,
        detail_text("%zu bytes, an address takes %zu", bytes.size(), std::size_t{encoded_bytes}));
  }
  datagram_address made;
  made.path.is_global = (bytes[at_flags] & is_global) != std::byte{};
  if (made.path.is_global) std::memcpy(made.path.gid.raw, &bytes[at_gid], sizeof(ibv_gid));
  made.qpn = le::get<std::uint32_t>(&bytes[at_qpn]);
  made.qkey = le::get<std::uint32_t>(&bytes[at_qkey]);
  made.path.lid = le::get<std::uint16_t>(&bytes[at_lid]);
  made.path.service_level = std::uint8_t(bytes[at_service_level]);
  made.path.traffic_class = std::uint8_t(bytes[at_traffic_class]);
  check(made, call);
  return made;
}

}  // namespace cordma
