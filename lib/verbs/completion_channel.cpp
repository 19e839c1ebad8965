#include <cordma/verbs/completion_channel.hpp>

#include "base/descriptors.hpp"
#include "failures.hpp"

#include <cordma/detail/base/assert.hpp>
#include <cordma/verbs/completion_queue.hpp>

#include <fcntl.h>

#include <cerrno>

namespace cordma::verbs {

void completion_channel::destroyer::operator()(ibv_comp_channel* channel) const noexcept {
  const int rc = ibv_destroy_comp_channel(channel);
  CORDMA_ASSERT(rc != EBUSY, "completion channel destroyed before its completion queues");
}

completion_channel::completion_channel(context& ctx)
    : channel_{ibv_create_comp_channel(ctx.native_handle())} {
  if (channel_ == nullptr) {
    detail::throw_errno(errno, "ibv_create_comp_channel", way_out_of_descriptors(errno));
  }
  const int flags = ::fcntl(fd(), F_GETFL);
  if (flags < 0 || ::fcntl(fd(), F_SETFL, flags | O_NONBLOCK) != 0) {
    detail::throw_errno(errno, "fcntl", "cannot make the completion channel non-blocking");
  }
}

std::optional<completion_event> completion_channel::get_event() {
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  // EINTR must not look like "empty": an edge-triggered waiter would never come back for the event.
  while (ibv_get_cq_event(channel_.get(), &cq, &cq_context) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return std::nullopt;
    detail::throw_errno(errno, "ibv_get_cq_event");
  }
  auto& events = *static_cast<detail::cq_events*>(cq_context);
  ++events.unacknowledged;
  return completion_event{cq, events.user_context};
}

}  // namespace cordma::verbs
