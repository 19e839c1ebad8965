#include "persistent.hpp"
#include "scenarios.hpp"

#include <softverbs/softverbs.h>

#include <cerrno>

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

/// Verbs that programs call all the time, and those that ask and change. The oracle of requests
/// calls ibv_query_qp itself.
constexpr std::array failing_verbs{
    "ibv_post_send",  "ibv_wr_complete", "ibv_post_recv",       "ibv_post_srq_recv",
    "ibv_poll_cq",    "ibv_start_poll",  "ibv_get_cq_event",    "ibv_req_notify_cq",
    "ibv_modify_qp",  "ibv_query_port",  "ibv_query_gid",       "ibv_query_device",
    "ibv_modify_srq", "ibv_create_ah",   "ibv_get_async_event",
};

/// Ends all failures that were asked for.
struct failures {
  failures() = default;
  failures(const failures&) = delete;
  ~failures() { end(); }
  static void end() { static_cast<void>(::softverbs_reset()); }
};

/// Lets a call of a verb fail soon, on the host that makes it, again and again until `until`.
void fail_some_call(sim::world& w, time_point until) {
  const duration pause{w.random(std::uint64_t(duration{200ms}.count()))};
  if (w.now() + pause >= until) return;
  w.after(pause, [&w, until] {
    const char* const verb = failing_verbs[w.random(failing_verbs.size() - 1)];
    const auto nth = unsigned(1 + w.random(std::uint64_t{1} << w.random(10)));
    const int code = w.random(1) == 0 ? ENOMEM : EIO;
    if (::softverbs_fail_call(verb, nth, code) != 0) w.fail("a verb that does not fail");
    fail_some_call(w, until);
  });
}

}  // namespace

void play_failing_verbs(sim::world& w) {
  const failures all;
  fail_some_call(w, w.now() + faults_time);
  w.after(faults_time, [] { failures::end(); });
  constexpr std::array plays{play_repeated_streams, play_repeated_shared_receives,
                             play_repeated_datagrams, play_troubled_loans};
  plays[w.random(plays.size() - 1)](w);
}

}  // namespace cordma::test
