#include <cordma/connection/endpoint.hpp>

#include <cordma/base/error.hpp>

#include <cerrno>
#include <charconv>

namespace cordma {
namespace {

constexpr std::string_view unix_prefix{"unix:"};
constexpr std::string_view cm_prefix{"rdma_cm:"};

[[noreturn]] void throw_malformed(std::string_view text, const char* why) {
  std::string detail{"\""};
  detail.append(text.substr(0, 100)).append("\": ").append(why);
  throw error{errno_failure(EINVAL, "endpoint::parse", {}, std::string_view{detail})};
}

}  // namespace

endpoint endpoint::parse(std::string_view text) {
  if (text.starts_with(cm_prefix)) {
    endpoint made = parse(text.substr(cm_prefix.size()));
    if (made.kind != bootstrap::tcp) throw_malformed(text, "rdma_cm connects to a host and a port");
    made.kind = bootstrap::rdma_cm;
    return made;
  }
  if (text.starts_with(unix_prefix)) {
    endpoint made{std::string{text.substr(unix_prefix.size())}, 0};
    if (made.host.empty()) throw_malformed(text, "no path; write unix:path, or unix:@name");
    made.kind = bootstrap::unix_socket;
    return made;
  }
  std::string_view host = text;
  std::string_view rest;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == text.npos) throw_malformed(text, "no ']' after the IPv6 address");
    host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
  } else {
    const std::size_t colon = text.find(':');
    if (colon != text.npos && text.find(':', colon + 1) != text.npos) {
      throw_malformed(
          text,
          "more than one ':': an IPv6 address stands in brackets, [::1]:7471, and the ways "
          "are unix: and rdma_cm:");
    }
    host = text.substr(0, colon);
    if (colon != text.npos) rest = text.substr(colon);
  }
  if (host.empty()) throw_malformed(text, "no host; write host:port");
  if (!rest.starts_with(':')) throw_malformed(text, "no port; write host:port");
  rest.remove_prefix(1);
  std::uint16_t port = 0;
  const auto [end, failed] = std::from_chars(rest.data(), rest.data() + rest.size(), port);
  if (failed != std::errc{} || end != rest.data() + rest.size()) {
    throw_malformed(text, "the port is not a number from 0 to 65535");
  }
  return {std::string{host}, port};
}

endpoint endpoint::of(std::string_view host, std::int64_t port) {
  if (port < 0 || port > UINT16_MAX) {
    throw_malformed(std::string{host} + ':' + std::to_string(port),
                    "the port is not a number from 0 to 65535");
  }
  return {std::string{host}, static_cast<std::uint16_t>(port)};
}

std::string endpoint::to_string() const {
  if (kind == bootstrap::unix_socket) return std::string{unix_prefix} + host;
  const bool is_ipv6 = host.find(':') != host.npos;
  const std::string where = (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
  return kind == bootstrap::rdma_cm ? std::string{cm_prefix} + where : where;
}

}  // namespace cordma
