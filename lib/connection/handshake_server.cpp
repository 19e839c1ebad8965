#include <cordma/connection/handshake_server.hpp>

#include <cstdio>

namespace cordma {
namespace {

void check_range(const char* name, long long value, long long low, long long high) {
  if (value >= low && value <= high) return;
  char text[120];
  std::snprintf(text, sizeof text, "%s %lld is not between %lld and %lld", name, value, low, high);
  throw error{{.code = errc::limit_exceeded, .call = "listener_options", .detail = text}};
}

}  // namespace

void check(const listener_options& o) {
  check_range("handshakes_max", o.handshakes_max, 1, listener_options::handshakes_limit);
  check_range("ready_max", o.ready_max, 1, listener_options::ready_limit);
  check_range("handshake_timeout (ms)", o.handshake_timeout.count(), 1, 24LL * 3600 * 1000);
  check_range("tcp_backlog", o.tcp_backlog, 1, 65535);
}

}  // namespace cordma
