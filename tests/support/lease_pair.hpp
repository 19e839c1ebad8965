#pragma once

#include "connected_pair.hpp"
#include "sizes.hpp"
#include "until.hpp"

#include "agent/agent.hpp"

#include <optional>
#include <system_error>
#include <utility>
#include <vector>

// Two connections of one runtime, of which the server lends under a policy of each strength.
namespace cordma::test::leases {

/// A policy under which a peer may ask, of one strength.
inline connection_options lends(isolation level, std::size_t bytes_max = 64 * mib) {
  connection_options o;
  o.agent.lending.bytes_max = bytes_max;
  o.agent.lending.isolation_min = o.agent.lending.isolation_max = level;
  return o;
}

/// The strengths that the device under test has.
inline std::vector<isolation> strengths() {
  runtime rt{on_test_device()};
  const verbs::port_info port = rt.context().active_port();
  const verbs::gid_entry gid = verbs::choose_gid(rt.context().gid_table(port.number));
  lending windows{rt.context(), rt.protection_domain()};
  std::vector<isolation> all{isolation::shared_key, isolation::exact_registered};
  if (windows.strongest(rt.executor(), port, gid) == isolation::exact)
    all.push_back(isolation::exact);
  return all;
}

/// A client that borrows from a server.
struct pair : connected_pair {
  explicit pair(const connection_options& of_server, const connection_options& of_client = {})
      : connected_pair{{}, of_client, of_server} {}
  explicit pair(isolation level) : pair{lends(level)} {}

  remote_mr borrow(std::size_t bytes, remote_mr_request request = {}) {
    return rt.run(client.request_remote_mr(bytes, request));
  }
  void wait_for(auto condition) { rt.run(until(rt.executor(), condition)); }
  /// Turns of the executor until the owner has no open lease.
  void settle() {
    wait_for([&] { return server.lending().open == 0; });
  }
};

template <class Op>
std::error_code outcome_of(runtime& rt, Op&& op) {
  const auto outcome = rt.run(as_result(std::forward<Op>(op)));
  return outcome.has_failure() ? outcome.failure().code : std::error_code{};
}

}  // namespace cordma::test::leases
