#include "shared_receive_queue.hpp"

#include "failures.hpp"

#include <cordma/detail/base/assert.hpp>

#include <cerrno>
#include <string>

namespace cordma::verbs {
namespace {

constexpr const char* create_srq = "ibv_create_srq";

[[noreturn]] void throw_not_supported() {
  detail::throw_failure(errc::not_supported, create_srq,
                        "the device has no shared receive queues: give each queue pair receives "
                        "of its own");
}

[[noreturn]] void throw_cannot_create(int error, const shared_receive_queue_capabilities& wanted,
                                      const device_limits& limits) {
  if (error == ENOSYS || error == EOPNOTSUPP) throw_not_supported();
  const std::string subject =
      std::to_string(wanted.wr_max) + " receives of " + std::to_string(wanted.sge_max) + " slices";
  const std::uint64_t bytes = sizeof(ibv_sge) * (wanted.sge_max + 1ull) * wanted.wr_max;
  detail::throw_errno(
      error, create_srq,
      detail::lack_text(error, subject, bytes, limits.srq_max, "shared receive queues"));
}

}  // namespace

void check(const shared_receive_queue_capabilities& wanted, const device_limits& limits) {
  if (limits.srq_max == 0) throw_not_supported();
  detail::check_range(create_srq, "wr_max", wanted.wr_max, 1, limits.srq_wr_max, "the device's");
  detail::check_range(create_srq, "sge_max", wanted.sge_max, 1, limits.srq_sge_max, "the device's");
}

void shared_receive_queue::destroyer::operator()(ibv_srq* srq) const noexcept {
  const int rc = ibv_destroy_srq(srq);  // Another errno: the device is gone, which is nobody's bug.
  CORDMA_ASSERT(rc != EBUSY, "shared receive queue destroyed before its queue pairs");
}

void shared_receive_queue::arm_limit(std::uint32_t limit) {
  ibv_srq_attr attributes{};
  attributes.srq_limit = limit;
  if (const int rc = ibv_modify_srq(srq_.get(), &attributes, IBV_SRQ_LIMIT); rc != 0)
    detail::throw_errno(rc, "ibv_modify_srq", detail::detail_text("limit %u", limit));
}

shared_receive_queue::shared_receive_queue(protection_domain& pd,
                                           const shared_receive_queue_capabilities& wanted,
                                           void* srq_context) {
  check(wanted, pd.limits());
  ibv_srq_init_attr attributes{};
  attributes.srq_context = srq_context;
  attributes.attr = {.max_wr = wanted.wr_max, .max_sge = wanted.sge_max, .srq_limit = 0};
  srq_.reset(ibv_create_srq(pd.queues_handle(), &attributes));
  if (srq_ == nullptr) throw_cannot_create(errno, wanted, pd.limits());
  caps_ = {.wr_max = attributes.attr.max_wr, .sge_max = attributes.attr.max_sge};
}

shared_receive_queue::shared_receive_queue(protection_domain& pd, xrc_domain& domain,
                                           completion_queue& cq,
                                           const shared_receive_queue_capabilities& wanted,
                                           void* srq_context) {
  check(wanted, pd.limits());
  ibv_srq_init_attr_ex attributes{};
  attributes.srq_context = srq_context;
  attributes.attr = {.max_wr = wanted.wr_max, .max_sge = wanted.sge_max, .srq_limit = 0};
  attributes.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  attributes.srq_type = IBV_SRQT_XRC;
  attributes.pd = pd.queues_handle();
  attributes.xrcd = domain.native_handle();
  attributes.cq = cq.native_handle();
  srq_.reset(ibv_create_srq_ex(pd.native_handle()->context, &attributes));
  if (srq_ == nullptr) throw_cannot_create(errno, wanted, pd.limits());
  caps_ = {.wr_max = attributes.attr.max_wr, .sge_max = attributes.attr.max_sge};
  if (const int rc = ibv_get_srq_num(srq_.get(), &num_); rc != 0)
    detail::throw_errno(rc, "ibv_get_srq_num");
}

}  // namespace cordma::verbs
