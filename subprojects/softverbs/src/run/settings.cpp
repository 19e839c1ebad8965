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
    {"--any-uid", nullptr, "SOFTVERBS_ANY_UID", "1",
     "processes of other users may connect, where both sides say so", nullptr, nullptr},
    {"--off", nullptr, "SOFTVERBS", "off", "no soft0: what the program does without it", nullptr,
     nullptr},
};

}  // namespace

std::span<const setting> settings() noexcept { return all; }

bool parse_number(std::string_view text, unsigned least, unsigned most, unsigned& number) noexcept {
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && stopped == end && number >= least && number <= most;
}

std::string environment(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr ? value : "";
}

}  // namespace softverbs::run
