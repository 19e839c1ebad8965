#include <cordma/agent/agent_options.hpp>

#include "agent.hpp"
#include "base/check_option.hpp"

#include <cordma/base/error.hpp>

namespace cordma {

const char* to_string(isolation level) noexcept {
  switch (level) {
    case isolation::shared_key: return "shared_key";
    case isolation::exact_registered: return "exact_registered";
    case isolation::exact: return "exact";
  }
  return "?";
}

void check(const agent_options& o) {
  const auto check_range = [](const char* name, long long value, long long low, long long high) {
    check_option("agent_options", name, value, low, high);
  };
  const auto check_length = [](const char* name, time_span value) {
    check_timeout("agent_options", name, value);
  };
  const lending_policy& p = o.lending;
  check_range("lending.leases_max", p.leases_max, 1, lender::leases_limit);
  check_length("lending.lease_max", p.lease_max);
  check_length("lending.grace", p.grace);
  check_length("lending.revoke_timeout", p.revoke_timeout);
  check_range("offers_max", o.offers_max, 0, 65536);
  check_range("operation_margin_percent", o.operation_margin_percent, 0, 90);
  check_option("agent_options", "operation_margin_min", o.operation_margin_min, duration{0},
               std::chrono::hours{24});
  check_length("request_timeout", o.request_timeout);
  const auto refuse = [](const char* why) {
    throw error{{.code = errc::not_supported, .call = "agent_options", .detail = why}};
  };
  if (!verbs::allows(lending_policy::lendable_access, p.access_max))
    refuse("lending.access_max: of remote_read, remote_write, remote_atomic");
  if (p.isolation_min > p.isolation_max)
    refuse("lending.isolation_min is stronger than isolation_max");
  if (p.zero_based && p.isolation_min == isolation::shared_key)
    refuse("lending.zero_based needs windows: isolation_min exact_registered or exact");
}

}  // namespace cordma
