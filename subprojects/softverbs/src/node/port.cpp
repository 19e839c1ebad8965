#include "node/port.hpp"

#include "link/ip_address.hpp"
#include "node/gid_table.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>

namespace softverbs {

namespace {

/// The default subnet prefix, and the high half of the GUID: locally administered.
constexpr std::uint8_t gid_prefix[12] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0, 's', 'v'};
constexpr std::uint32_t low_half = 0xffff;

constinit std::atomic<const subnet*> current{nullptr};
bool is_read = false;

[[noreturn]] void refuse(const std::string& why) {
  throw std::system_error{EINVAL, std::generic_category(), "softverbs: " + why};
}

ibv_gid with_address(const std::uint8_t (&prefix)[12], std::uint32_t address) noexcept {
  ibv_gid gid;
  const std::uint32_t network_order = htonl(address);
  std::memcpy(gid.raw, prefix, sizeof prefix);
  std::memcpy(gid.raw + sizeof prefix, &network_order, sizeof network_order);
  return gid;
}

/// The address behind a prefix; nullopt: the GID has another prefix.
std::optional<std::uint32_t> address_behind(const std::uint8_t (&prefix)[12],
                                            const void* gid) noexcept {
  if (std::memcmp(gid, prefix, sizeof prefix) != 0) return std::nullopt;
  std::uint32_t network_order;
  std::memcpy(&network_order, static_cast<const std::uint8_t*>(gid) + sizeof prefix,
              sizeof network_order);
  return ntohl(network_order);
}

std::string text_of(std::uint32_t address) {
  char text[INET_ADDRSTRLEN];
  const in_addr network_order{htonl(address)};
  return ::inet_ntop(AF_INET, &network_order, text, sizeof text);
}

std::uint16_t read_lid(std::string_view text, std::string_view entry) {
  const bool is_hex = text.starts_with("0x");
  if (is_hex) text.remove_prefix(2);
  std::uint16_t lid = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), lid, is_hex ? 16 : 10);
  if (error != std::errc{} || end != text.data() + text.size() || lid == 0 || lid > unicast_lid_max)
    refuse("SOFTVERBS_LID: '" + std::string{entry} + "' has no LID from 1 to 0xbfff");
  return lid;
}

std::uint32_t read_address(std::string_view text, std::string_view entry) {
  in_addr network_order{};
  if (::inet_pton(AF_INET, std::string{text}.c_str(), &network_order) != 1)
    refuse("SOFTVERBS_LID: '" + std::string{entry} + "' has no IPv4 address");
  return ntohl(network_order.s_addr);
}

/// The IPv4 address that other hosts use for this one.
std::uint32_t own_address(const tcp_settings& tcp) noexcept {
  if (tcp.listen_set)
    if (const auto chosen = address_behind(mapped_prefix, &tcp.listen); chosen && *chosen != 0)
      return *chosen;
  return first_ip4_address();
}

}  // namespace

subnet::subnet(std::string_view list, std::uint32_t own) : own_{0, own} {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    take(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  if (own_.lid == 0) own_.lid = static_cast<std::uint16_t>(own_.address & low_half);
  if (own_.lid == 0 || own_.lid > unicast_lid_max)
    refuse("the low half of " + text_of(own_.address) + " is no LID: set SOFTVERBS_LID");
  check();
}

void subnet::take(std::string_view entry) {
  const std::size_t equals = entry.find('=');
  const std::uint16_t lid = read_lid(entry.substr(0, equals), entry);
  host is{lid, own_.address};
  bool is_own = true;
  if (equals != std::string_view::npos) {
    is.address = read_address(entry.substr(equals + 1), entry);
    is_own = is_own_address(with_address(mapped_prefix, is.address));
  }
  if (!is_own) return listed_.push_back(is);
  if (own_.lid != 0) refuse("SOFTVERBS_LID has this host twice");
  own_ = is;
}

/// \errors std::system_error (EINVAL): two hosts have one LID, or one host has two.
void subnet::check() const {
  for (auto one = listed_.begin(); one != listed_.end(); ++one) {
    const auto is_taken = [&](const host& other) { return other.lid == one->lid; };
    const auto is_same = [&](const host& other) { return other.address == one->address; };
    if (is_taken(own_) || std::any_of(listed_.begin(), one, is_taken))
      refuse("SOFTVERBS_LID: two hosts have LID " + std::to_string(one->lid));
    if (std::any_of(listed_.begin(), one, is_same))
      refuse("SOFTVERBS_LID has " + text_of(one->address) + " twice");
  }
}

std::optional<std::uint32_t> subnet::address_of(std::uint16_t lid) const noexcept {
  if (lid == 0 || lid > unicast_lid_max) return std::nullopt;
  if (lid == own_.lid) return own_.address;
  for (const host& one : listed_)
    if (one.lid == lid) return one.address;
  return (own_.address & ~low_half) | lid;
}

std::uint16_t subnet::lid_of(std::uint32_t address) const noexcept {
  if (address == own_.address) return own_.lid;
  for (const host& one : listed_)
    if (one.address == address) return one.lid;
  return static_cast<std::uint16_t>(address & low_half);
}

void read_port_settings(const tcp_settings& tcp) {
  if (is_read) return;
  const char* const layer = std::getenv("SOFTVERBS_LINK_LAYER");
  const std::string_view wanted = layer != nullptr ? layer : "";
  if (wanted == "infiniband") {
    const char* const list = std::getenv("SOFTVERBS_LID");
    // Never freed: other threads read it until the process ends.
    current.store(new subnet{list != nullptr ? list : "", own_address(tcp)},
                  std::memory_order_release);
  } else if (!wanted.empty() && wanted != "ethernet") {
    refuse("SOFTVERBS_LINK_LAYER is neither ethernet nor infiniband");
  }
  is_read = true;
}

const subnet* port_subnet() noexcept { return current.load(std::memory_order_acquire); }

ibv_gid port_gid() noexcept { return with_address(gid_prefix, port_subnet()->own_address()); }

std::optional<ibv_gid> host_of(const ibv_ah_attr& path) noexcept {
  const subnet* const known = port_subnet();
  if (path.is_global == 0 && known == nullptr) return std::nullopt;
  if (path.is_global != 0 && path.grh.sgid_index >= gid_count()) return std::nullopt;
  if (known == nullptr) return path.grh.dgid;
  const auto address = path.is_global != 0 && path.dlid == 0
                           ? address_behind(gid_prefix, path.grh.dgid.raw)
                           : known->address_of(path.dlid);
  if (!address) return std::nullopt;
  return with_address(mapped_prefix, *address);
}

std::uint16_t lid_of(const in6_addr& host) noexcept {
  const subnet* const known = port_subnet();
  if (known == nullptr) return 0;
  const auto address = address_behind(mapped_prefix, &host);
  return address ? known->lid_of(*address) : known->own_lid();
}

}  // namespace softverbs
