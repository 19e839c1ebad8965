#include "link/tcp_listener.hpp"

#include "link/hints.hpp"
#include "link/ip_address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

namespace softverbs {

namespace {

// TCP notices a lost host within about 20 seconds, idle or not. Queue pairs with shorter timers use
// unacknowledged_time(), so an idle socket is probed once a second, the shortest interval there is.
constexpr unsigned unanswered_ms_max = 20'000;
constexpr int keepalive_idle_seconds = 1;
constexpr int keepalive_interval_seconds = 1;
constexpr int keepalive_probes = 20;
constexpr int connect_attempts_max = 3;  ///< SYNs after the first: about 15 seconds

socklen_t to_socket_address(const in6_addr& host, std::uint16_t port,
                            sockaddr_storage& address) noexcept {
  address = {};
  if (is_mapped(host)) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    v4.sin_addr = ip4_of(host);
    return sizeof v4;
  }
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  v6.sin6_addr = host;
  return sizeof v6;
}

/// False: no address of IP.
bool from_socket_address(const sockaddr_storage& name, in6_addr& host) noexcept {
  if (name.ss_family == AF_INET)
    host = mapped(reinterpret_cast<const sockaddr_in&>(name).sin_addr);
  else
    host = reinterpret_cast<const sockaddr_in6&>(name).sin6_addr;
  return name.ss_family == AF_INET || name.ss_family == AF_INET6;
}

unique_fd tcp_socket(int family) noexcept {
  return unique_fd{::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
}

void set(int socket, int level, int option, int value) noexcept {
  // An optimization: a kernel without the option keeps its default.
  (void)::setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

void warn_of_refusal(const in6_addr& host, std::uint16_t port) noexcept {
  if (IN6_IS_ADDR_UNSPECIFIED(&host)) return;  // A process of this host that has ended.
  const int saved = errno;
  char text[INET6_ADDRSTRLEN] = "?";
  if (is_mapped(host))
    ::inet_ntop(AF_INET, host.s6_addr + sizeof mapped_prefix, text, sizeof text);
  else
    ::inet_ntop(AF_INET6, &host, text, sizeof text);
  warn_once(
      hint::nobody_listens,
      "softverbs: nobody listens at %s, port %u: does the process there still run, and was it "
      "started with SOFTVERBS_LISTEN=%s (and SOFTVERBS_PORT as here)?\n",
      text, unsigned{port}, text);
  errno = saved;
}

tcp_settings tcp_settings_of_environment() {
  tcp_settings settings;
  in_addr v4{htonl(INADDR_LOOPBACK)};
  settings.listen = mapped(v4);
  if (const char* listen = std::getenv("SOFTVERBS_LISTEN"); listen != nullptr && *listen != '\0') {
    settings.listen_set = true;
    if (::inet_pton(AF_INET, listen, &v4) == 1)
      settings.listen = mapped(v4);
    else if (::inet_pton(AF_INET6, listen, &settings.listen) != 1)
      throw std::system_error{EINVAL, std::generic_category(), "SOFTVERBS_LISTEN is no address"};
  }
  if (const char* text = std::getenv("SOFTVERBS_PORT"); text != nullptr && *text != '\0') {
    const std::string_view digits{text};
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), settings.port);
    if (error != std::errc{} || end != digits.data() + digits.size() || settings.port == 0 ||
        settings.port > 65535 - process_slots)
      throw std::system_error{EINVAL, std::generic_category(), "SOFTVERBS_PORT is out of range"};
  }
  return settings;
}

unique_fd open_tcp_listener(const in6_addr& address, std::uint16_t port) noexcept {
  sockaddr_storage name;
  const socklen_t length = to_socket_address(address, port, name);
  unique_fd listener = tcp_socket(name.ss_family);
  if (!listener) return listener;
  set(listener.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&name), length) == 0 &&
      ::listen(listener.get(), SOMAXCONN) == 0)
    return listener;
  const int error = errno;
  listener.reset();
  errno = error;
  return listener;
}

void tune(int socket) noexcept {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(unanswered_ms_max));
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, keepalive_idle_seconds);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, keepalive_interval_seconds);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, keepalive_probes);
}

std::chrono::milliseconds unacknowledged_time(int socket) noexcept {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  // TCP probes idle connections and closed windows, so one unanswered probe is normal.
  if (info.tcpi_unacked == 0 && info.tcpi_probes < 2) return {};
  return std::chrono::milliseconds{info.tcpi_last_ack_recv};
}

bool address_of_peer(int socket, in6_addr& host) noexcept {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  return ::getpeername(socket, reinterpret_cast<sockaddr*>(&name), &length) == 0 &&
         from_socket_address(name, host);
}

bool own_address(int socket, in6_addr& host) noexcept {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &length) == 0 &&
         from_socket_address(name, host);
}

bool connect_tcp(const in6_addr& host, std::uint16_t port, unique_fd& socket,
                 const in6_addr* source) noexcept {
  sockaddr_storage name;
  const socklen_t length = to_socket_address(host, port, name);
  socket = tcp_socket(name.ss_family);
  if (!socket) return false;
  tune(socket.get());
  set(socket.get(), IPPROTO_TCP, TCP_SYNCNT, connect_attempts_max);
  if (source != nullptr && is_mapped(*source) == is_mapped(host)) {
    sockaddr_storage from;
    const socklen_t bytes = to_socket_address(*source, 0, from);
    set(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&from), bytes) != 0) return false;
  }
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&name), length) == 0) return true;
  if (errno == ECONNREFUSED) warn_of_refusal(host, port);
  return errno == EINPROGRESS;
}

void report_refusal(int socket, const in6_addr& host, std::uint16_t port) noexcept {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == ECONNREFUSED)
    warn_of_refusal(host, port);
}

}  // namespace softverbs
