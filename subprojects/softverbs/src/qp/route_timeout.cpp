#include "qp/data_path.hpp"

// TCP takes some 20 s to give a cut connection up, and as long again for the next one. Each queue
// pair therefore checks its TCP route by its own timers. A simulated link never ends by itself.

namespace softverbs {
namespace {

/// The least route_timeout: TCP probes an idle route once a second, so shorter silences prove
/// nothing.
constexpr std::chrono::seconds route_timeout_min{3};

/// The time that all tries of a request take.
clock::duration route_timeout(const queue_pair& qp, const link& route) noexcept {
  const std::chrono::nanoseconds timeout{std::uint64_t{4096} << qp.attr.timeout};
  const clock::duration all = timeout * (qp.terms.retries + 1);
  return route.is_simulated() ? all : std::max<clock::duration>(all, route_timeout_min);
}

void check_again(queue_pair& qp, clock::time_point when) noexcept {
  qp.requester.watch_at = when;
  qp.local_node->wake_at(qp.number(), when);
}

}  // namespace

void watch_route(queue_pair& qp, const link& route) noexcept {
  if (qp.requester.watch_at != clock::time_point{}) return;
  if (!route.is_tcp() && !route.is_simulated()) return;
  if (!qp.is_reliable() || qp.attr.timeout == 0) return;
  qp.requester.asked_at = clock::now();
  check_again(qp, qp.requester.asked_at + route_timeout(qp, route));
}

void note_sent(queue_pair& qp) noexcept {
  if (qp.sends.completed == qp.sends.next) qp.requester.asked_at = clock::now();
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
  clock::duration silent = state.route->silent_for();
  // A queue pair that waits for a timer of its own expects no answer meanwhile.
  if (state.route->is_simulated())
    silent = state.waits ? clock::duration{} : std::min(silent, now - state.asked_at);
  const clock::duration timeout = route_timeout(qp, *state.route);
  if (silent < timeout) return check_again(qp, now + (timeout - silent));
  rewind(qp);
  fail(qp, IBV_WC_RETRY_EXC_ERR);
}

}  // namespace softverbs
