#include <cordma/detail/connection/handshake_server.hpp>

#include "base/check_option.hpp"

namespace cordma {

void check(const listener_options& o) {
  const auto check_range = [](const char* name, long long value, long long low, long long high) {
    check_option("listener_options", name, value, low, high);
  };
  check_range("handshakes_max", o.handshakes_max, 1, listener_options::handshakes_limit);
  check_range("ready_max", o.ready_max, 1, listener_options::ready_limit);
  check_timeout("listener_options", "handshake_timeout", o.handshake_timeout);
  check_range("tcp_backlog", o.tcp_backlog, 1, 65535);
}

}  // namespace cordma
