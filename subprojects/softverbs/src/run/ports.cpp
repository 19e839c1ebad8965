#include "run/ports.hpp"

#include "run/settings.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

namespace softverbs::run {

namespace {

/// TCP ports on which somebody listens, in this network namespace.
std::set<unsigned> listening_ports() {
  std::set<unsigned> ports;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines{table};
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words{line};
      std::string number;
      std::string local;
      std::string remote;
      std::string state;
      words >> number >> local >> remote >> state;
      const std::size_t colon = local.rfind(':');
      constexpr const char* listens = "0A";
      if (state != listens || colon == std::string::npos) continue;
      unsigned port = 0;
      std::from_chars(&local[colon] + 1, local.data() + local.size(), port, 16);
      ports.insert(port);
    }
  }
  return ports;
}

/// The names of softverbs' processes: abstract Unix sockets.
struct names {
  std::set<unsigned> slots;
  bool rdma_cm = false;
};

names bound_names() {
  constexpr const char* prefix = "@softverbs.";
  names found;
  std::ifstream lines{"/proc/net/unix"};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find(prefix);
    if (at == std::string::npos) continue;
    const std::string rest = line.substr(at + std::strlen(prefix));
    unsigned slot = 0;
    if (rest.starts_with("cm."))
      found.rdma_cm = true;
    else if (std::from_chars(rest.data(), rest.data() + rest.size(), slot).ec == std::errc{})
      found.slots.insert(slot);
  }
  return found;
}

/// errno of binding a port of this address, or 0.
int try_bind(const std::string& address) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  const bool is_v4 = ::inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1;
  if (!is_v4 && ::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) != 1) return EINVAL;
  const int socket = ::socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return errno;
  const int result = is_v4 ? ::bind(socket, reinterpret_cast<sockaddr*>(&v4), sizeof v4)
                           : ::bind(socket, reinterpret_cast<sockaddr*>(&v6), sizeof v6);
  const int error = result == 0 ? 0 : errno;
  ::close(socket);
  return error;
}

void check_listen(report& to, const std::string& address) {
  if (address.empty())
    to.note("listen", "other hosts cannot connect: SOFTVERBS_LISTEN is not set (--listen ADDRESS)");
  else if (const int error = try_bind(address); error != 0)
    to.problem("listen", "SOFTVERBS_LISTEN=" + address + ": " + std::strerror(error));
  else
    to.ok("listen", "other hosts may connect to " + address);
}

}  // namespace

void check_ports(report& to) {
  const std::string address = environment("SOFTVERBS_LISTEN");
  check_listen(to, address);
  const std::string text = environment("SOFTVERBS_PORT");
  unsigned first = port_when_unset;
  constexpr unsigned port_max = 65535;
  // check_settings() reports a bad SOFTVERBS_PORT.
  if (!text.empty() && !parse_number(text, 1, port_max - process_ports, first)) return;
  const std::set<unsigned> listening = listening_ports();
  const names bound = bound_names();
  unsigned others = 0;
  unsigned free = 0;
  for (unsigned slot = 0; slot < process_ports; ++slot) {
    if (bound.slots.contains(slot)) continue;
    if (listening.contains(first + slot))
      ++others;
    else
      ++free;
  }
  const std::string range =
      "TCP ports " + std::to_string(first) + " to " + std::to_string(first + process_ports - 1);
  const std::string counts = range + ": " + std::to_string(bound.slots.size()) +
                             " of softverbs' processes, " + std::to_string(others) +
                             " taken by others, " + std::to_string(free) + " free";
  if (free == 0)
    to.problem("ports", counts + ": choose others, the same on all hosts (--port N)");
  else
    to.ok("ports", counts);
  const unsigned for_rdma_cm = first + process_ports;
  if (!listening.contains(for_rdma_cm) || bound.rdma_cm) return;
  const std::string taken = "TCP port " + std::to_string(for_rdma_cm) +
                            ", on which rdma_cm answers other hosts, is taken by another program";
  if (address.empty())
    to.note("ports", taken);
  else
    to.problem("ports", taken + ": choose others, the same on all hosts (--port N)");
}

}  // namespace softverbs::run
