#include <cordma/connection/connection_options.hpp>

#include <cordma/base/error.hpp>

#include <algorithm>
#include <cstdio>

namespace cordma {
namespace {

void check_range(const char* name, long long value, long long low, long long high) {
  if (value >= low && value <= high) return;
  char text[120];
  std::snprintf(text, sizeof text, "%s %lld is not between %lld and %lld", name, value, low, high);
  throw error{{.code = errc::limit_exceeded, .call = "connection_options", .detail = text}};
}

constexpr long long ms_max = 24LL * 3600 * 1000;

}  // namespace

void check(const connection_options& o, const verbs::device_limits& limits,
           const verbs::port_info& port) {
  verbs::check(o.capabilities, limits);
  verbs::check(verbs::rts_attributes{.rd_atomic_max = 0,
                                     .timeout = o.timeout,
                                     .retry_cnt = o.retry_cnt,
                                     .rnr_retry = o.rnr_retry},
               limits);
  check_range("min_rnr_timer", o.min_rnr_timer, 1, 31);
  check_range("pkey_index", o.pkey_index, 0, static_cast<long long>(port.pkey_count) - 1);
  if (o.gid_index) {
    check_range("gid_index", *o.gid_index, 0,
                std::min(255LL, static_cast<long long>(port.gid_count) - 1));
  }
  if (o.rd_atomic_max) {
    check_range("rd_atomic_max", *o.rd_atomic_max, 0,
                std::min(limits.qp_rd_atom_max, limits.qp_init_rd_atom_max));
  }
  check_range("heartbeat.interval (ms)", o.heartbeat.interval.count(), 1, ms_max);
  check_range("heartbeat.misses", o.heartbeat.misses, 1, 1000);
  check_range("connect_timeout (ms)", o.connect_timeout.count(), 1, ms_max);
  check_range("close_deadline (ms)", o.close_deadline.count(), 1, ms_max);
}

}  // namespace cordma
