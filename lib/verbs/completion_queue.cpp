#include <cordma/verbs/completion_queue.hpp>

#include "base/descriptors.hpp"
#include "failures.hpp"

#include <cordma/detail/base/assert.hpp>

#include <fcntl.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

namespace cordma::verbs {

namespace {

/// Makes a completion queue in a parent domain. Null with EOPNOTSUPP: the driver makes none there.
ibv_cq* create_in(ibv_pd* parent, unsigned depth, void* cq_context, ibv_comp_channel* channel,
                  int comp_vector) noexcept {
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = depth;
  wanted.cq_context = cq_context;
  wanted.channel = channel;
  wanted.comp_vector = static_cast<std::uint32_t>(comp_vector);
  wanted.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  wanted.parent_domain = parent;
  ibv_cq_ex* const cq = ibv_create_cq_ex(parent->context, &wanted);
  return cq != nullptr ? ibv_cq_ex_to_cq(cq) : nullptr;
}

}  // namespace

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

ibv_cq* completion_channel::get_event() {
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  // EINTR must not look like "empty": an edge-triggered waiter would never come back for the event.
  while (ibv_get_cq_event(channel_.get(), &cq, &cq_context) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return nullptr;
    detail::throw_errno(errno, "ibv_get_cq_event");
  }
  ++*completion_queue::count_of(*cq);
  return cq;
}

void completion_queue::destroyer::operator()(ibv_cq* cq) const noexcept {
  const std::unique_ptr<unsigned> unacknowledged{count_of(*cq)};
  if (*unacknowledged != 0) ibv_ack_cq_events(cq, *unacknowledged);
  const int rc = ibv_destroy_cq(cq);  // Another errno: the device is gone, which is nobody's bug.
  CORDMA_ASSERT(rc != EBUSY, "completion queue destroyed before its queue pairs");
}

completion_queue::completion_queue(context& ctx, unsigned depth, completion_channel* channel,
                                   int comp_vector, const protection_domain* pd) {
  constexpr const char* create_cq = "ibv_create_cq";
  constexpr std::uint64_t entry_bytes = 64;
  detail::check_range(create_cq, "depth", depth, 1, ctx.limits().cqe_max, "the device's");
  if (comp_vector < 0 || comp_vector >= ctx.comp_vector_count()) {
    detail::throw_failure(errc::limit_exceeded, create_cq,
                          detail::detail_text("comp_vector %d; the device has 0 to %d", comp_vector,
                                              ctx.comp_vector_count() - 1));
  }
  auto unacknowledged = std::make_unique<unsigned>(0u);
  ibv_comp_channel* const events = channel != nullptr ? channel->native_handle() : nullptr;
  const bool has_parent =
      pd != nullptr && pd->queues() == protection_domain::queue_domain::thread_domain;
  if (has_parent)
    cq_.reset(create_in(pd->queues_handle(), depth, unacknowledged.get(), events, comp_vector));
  if (!has_parent || (cq_ == nullptr && (errno == EOPNOTSUPP || errno == ENOSYS))) {
    cq_.reset(ibv_create_cq(ctx.native_handle(), static_cast<int>(depth), unacknowledged.get(),
                            events, comp_vector));
  }
  if (cq_ == nullptr) {
    const int error = errno;
    detail::throw_errno(
        error, create_cq,
        detail::lack_text(error, std::to_string(depth) + " entries", entry_bytes * depth,
                          ctx.limits().cq_max, "completion queues"));
  }
  [[maybe_unused]] const auto* given =
      unacknowledged.release();  // The queue's destroyer deletes it.
}

void completion_queue::ack_events() noexcept {
  if (unacknowledged_events() == 0) return;
  ibv_ack_cq_events(cq_.get(), std::exchange(*count_of(*cq_), 0));
}

}  // namespace cordma::verbs
