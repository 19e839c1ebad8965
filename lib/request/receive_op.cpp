#include <cordma/detail/request/receive_op.hpp>

#include "queue/receive_queue.hpp"

namespace cordma {

bool awaited_receive::start(waiter& w, const environment& env, bool posts,
                            std::span<const local_mr_slice> buffer) noexcept {
  if (env.stop.stop_requested()) {
    stop();
    return true;
  }
  if (begin(posts, buffer)) return true;
  wait_.begin(w, {env.scheduler != nullptr ? env.scheduler : own_scheduler(), env.stop});
  return false;
}

void awaited_receive::on_stop(stop_callback& self) noexcept {
  awaited_receive& o = static_cast<wait_state&>(self).owner;
  o.stop();
  o.wait_.end();
}

scheduler* awaited_receive::own_scheduler() const noexcept { return &queue().scheduler(); }

}  // namespace cordma
