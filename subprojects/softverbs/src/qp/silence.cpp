#include "qp/data_path.hpp"

// TCP takes some 20 s to find that its route is cut, and longer to find that it stays so. A queue
// pair has timers of its own, and ends by them.

namespace softverbs {
namespace {

/// Below that, TCP's signs of life (it probes an idle route once a second) are too rare to tell.
constexpr std::chrono::seconds patience_least{3};

/// All tries of a request.
clock::duration patience(const queue_pair& qp) noexcept {
  const std::chrono::nanoseconds timeout{std::uint64_t{4096} << qp.attr.timeout};
  return std::max<clock::duration>(timeout * (qp.terms.retries + 1), patience_least);
}

void look_again(queue_pair& qp, clock::time_point when) noexcept {
  qp.requester.watch_at = when;
  qp.home->wake_at(qp.number(), when);
}

}  // namespace

void watch_route(queue_pair& qp, const link& route) noexcept {
  if (qp.requester.watch_at != clock::time_point{} || !route.is_tcp()) return;
  if (qp.type() != IBV_QPT_RC || qp.attr.timeout == 0) return;
  look_again(qp, clock::now() + patience(qp));
}

void look_at_way(queue_pair& qp) noexcept {
  requester_state& state = qp.requester;
  const clock::time_point now = clock::now();
  // An earlier deadline may have taken its place.
  if (now < state.watch_at) return look_again(qp, state.watch_at);
  state.watch_at = {};
  const ibv_qp_state is = qp.state.load(std::memory_order_acquire);
  if (qp.sends.completed == qp.sends.posted || (is != IBV_QPS_RTS && is != IBV_QPS_SQD)) return;
  if (state.route == nullptr || state.route->generation() != state.route_generation) return;
  const clock::duration silence = state.route->silence();
  if (silence < patience(qp)) return look_again(qp, now + (patience(qp) - silence));
  rewind(qp);
  fail(qp, IBV_WC_RETRY_EXC_ERR);
}

}  // namespace softverbs
