#include <cordma/verbs/completion_queue.hpp>

#include "failures.hpp"

#include <cordma/detail/base/assert.hpp>

#include <cerrno>
#include <cstdio>
#include <utility>

namespace cordma::verbs {
namespace {

constexpr const char* create_cq = "ibv_create_cq";

[[noreturn]] void throw_cannot_create(int error, unsigned depth, const device_limits& limits) {
  constexpr std::uint64_t entry_bytes = 64;
  char subject[64];
  std::snprintf(subject, sizeof subject, "%u entries", depth);
  detail::throw_errno(error, create_cq,
                      detail::may_be_memlock(error)
                          ? detail::lack_text(error, subject, entry_bytes * depth, limits.cq_max,
                                              "completion queues")
                          : subject);
}

}  // namespace

void completion_queue::destroyer::operator()(ibv_cq* cq) const noexcept {
  const int rc = ibv_destroy_cq(cq);  // Another errno: the device is gone, which is nobody's bug.
  CORDMA_ASSERT(rc != EBUSY, "completion queue destroyed before its queue pairs");
}

completion_queue::completion_queue(context& ctx, unsigned depth, completion_channel* channel,
                                   void* cq_context, int comp_vector)
    : events_{std::make_unique<detail::cq_events>()} {
  events_->user_context = cq_context;
  detail::check_range(create_cq, "depth", depth, 1, ctx.limits().cqe_max, "the device's");
  if (comp_vector < 0 || comp_vector >= ctx.comp_vector_count()) {
    detail::throw_failure(errc::limit_exceeded, create_cq,
                          detail::detail_text("comp_vector %d; the device has 0 to %d", comp_vector,
                                              ctx.comp_vector_count() - 1));
  }
  cq_.reset(ibv_create_cq(ctx.native_handle(), static_cast<int>(depth), events_.get(),
                          channel != nullptr ? channel->native_handle() : nullptr, comp_vector));
  if (cq_ == nullptr) throw_cannot_create(errno, depth, ctx.limits());
}

completion_queue& completion_queue::operator=(completion_queue&& other) noexcept {
  if (this == &other) return *this;
  destroy();
  events_ = std::move(other.events_);
  cq_ = std::move(other.cq_);
  return *this;
}

void completion_queue::ack_events() noexcept {
  if (events_->unacknowledged == 0) return;
  ibv_ack_cq_events(cq_.get(), std::exchange(events_->unacknowledged, 0));
}

void completion_queue::destroy() noexcept {
  if (cq_ == nullptr) return;
  ack_events();
  cq_.reset();
}

}  // namespace cordma::verbs
