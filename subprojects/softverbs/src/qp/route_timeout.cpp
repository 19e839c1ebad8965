#include "qp/data_path.hpp"

// TCP takes some 20 s to give a cut connection up, and as long again for the next one. Each queue
// pair therefore checks its TCP route by its own timers.

namespace softverbs {
namespace {

/// The least route_timeout: TCP probes an idle route once a second, so shorter silences prove
/// nothing.
constexpr std::chrono::seconds route_timeout_min{3};

/// The time that all tries of a request take.
clock::duration route_timeout(const queue_pair& qp) noexcept {
  const std::chrono::nanoseconds timeout{std::uint64_t{4096} << qp.attr.timeout};
  return std::max<clock::duration>(timeout * (qp.terms.retries + 1), route_timeout_min);
}

void check_again(queue_pair& qp, clock::time_point when) noexcept {
  qp.requester.watch_at = when;
  qp.local_node->wake_at(qp.number(), when);
}

}  // namespace

void watch_route(queue_pair& qp, const link& route) noexcept {
  if (qp.requester.watch_at != clock::time_point{} || !route.is_tcp()) return;
  if (!qp.is_reliable() || qp.attr.timeout == 0) return;
  check_again(qp, clock::now() + route_timeout(qp));
}

void check_route(queue_pair& qp) noexcept {
  requester_state& state = qp.requester;
  const clock::time_point now = clock::now();
  // The deadline that fired may be an earlier one: a QP has one deadline at a time.
  if (now < state.watch_at) return check_again(qp, state.watch_at);
  state.watch_at = {};
  const ibv_qp_state is = qp.state.load(std::memory_order_acquire);
  if (qp.sends.completed == qp.sends.posted || (is != IBV_QPS_RTS && is != IBV_QPS_SQD)) return;
  if (state.route == nullptr || state.route->generation() != state.route_generation) return;
  const clock::duration silent = state.route->unacknowledged_for();
  if (silent < route_timeout(qp)) return check_again(qp, now + (route_timeout(qp) - silent));
  rewind(qp);
  fail(qp, IBV_WC_RETRY_EXC_ERR);
}

}  // namespace softverbs
