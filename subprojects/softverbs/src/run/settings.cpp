#include "run/settings.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <cstdlib>

namespace softverbs::run {

namespace {

bool is_address(std::string_view value) {
  in6_addr parsed{};
  const std::string text{value};
  return ::inet_pton(AF_INET, text.c_str(), &parsed) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &parsed) == 1;
}

bool is_port(std::string_view value) {
  constexpr unsigned port_max = 65535;
  unsigned port = 0;
  return parse_number(value, 1, port_max - process_ports, port);
}

/// True for a list of one or more entries, separated by commas, that all satisfy `is_entry`.
bool is_list(std::string_view value, bool (*is_entry)(std::string_view)) {
  for (;;) {
    const std::size_t comma = value.find(',');
    if (!is_entry(value.substr(0, comma))) return false;
    if (comma == value.npos) return true;
    value.remove_prefix(comma + 1);
  }
}

bool is_lid(std::string_view entry) {
  constexpr unsigned lid_max = 0xbfff;
  const std::size_t equals = entry.find('=');
  unsigned lid = 0;
  std::string_view digits = entry.substr(0, equals);
  const bool is_hex = digits.starts_with("0x");
  if (is_hex) digits.remove_prefix(2);
  return parse_number(digits, 1, lid_max, lid, is_hex ? 16 : 10) &&
         (equals == entry.npos || is_address(entry.substr(equals + 1)));
}

constexpr setting all[] = {
    {"--cm", "soft", "SOFTVERBS_CM", nullptr,
     "softverbs' rdma_cm, even where the kernel's can be opened",
     [](std::string_view value) { return value == "soft"; }, "soft"},
    {"--listen", "ADDRESS", "SOFTVERBS_LISTEN", nullptr,
     "other hosts may connect to this address of this host", is_address, "an IPv4 or IPv6 address"},
    {"--port", "N", "SOFTVERBS_PORT", nullptr,
     "TCP ports N to N + 1024 (47000), the same on all hosts", is_port, "1 to 64511"},
    {"--link", "tcp", "SOFTVERBS_LINK", nullptr, "TCP between processes of this host, too",
     [](std::string_view value) { return value == "tcp"; }, "tcp"},
    {"--link-layer", "infiniband", "SOFTVERBS_LINK_LAYER", nullptr,
     "soft0 is an InfiniBand port, for programs that address by LID",
     [](std::string_view value) { return value == "infiniband" || value == "ethernet"; },
     "infiniband or ethernet"},
    {"--lid", "LIDS", "SOFTVERBS_LID", nullptr,
     "LIDs of hosts, as LID=ADDRESS,...; of this host without an address",
     [](std::string_view value) { return is_list(value, is_lid); },
     "LID or LID=ADDRESS, between commas, with LIDs from 1 to 0xbfff"},
    {"--peers", "ADDRESSES", "SOFTVERBS_PEERS", nullptr,
     "hosts of multicast groups, between commas, where there is no IP multicast",
     [](std::string_view value) { return is_list(value, is_address); },
     "IPv4 or IPv6 addresses between commas"},
    {"--any-uid", nullptr, "SOFTVERBS_ANY_UID", "1",
     "processes of other users may connect, where both sides say so", nullptr, nullptr},
    {"--off", nullptr, "SOFTVERBS", "off", "no soft0: what the program does without it", nullptr,
     nullptr},
};

}  // namespace

std::span<const setting> settings() noexcept { return all; }

bool parse_number(std::string_view text, unsigned least, unsigned most, unsigned& number,
                  int base) noexcept {
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number, base);
  return error == std::errc{} && stopped == end && number >= least && number <= most;
}

std::string environment(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr ? value : "";
}

}  // namespace softverbs::run
