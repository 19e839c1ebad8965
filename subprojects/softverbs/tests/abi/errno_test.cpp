#include <softverbs/softverbs.h>

#include <infiniband/verbs.h>

#include <catch2/catch.hpp>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

// Programs that were written for hardware read errno, also where a verb returns the error itself:
// the kernel's commands set it.

namespace {

ibv_context* open_soft0() {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  REQUIRE(list != nullptr);
  ibv_context* const opened = ibv_open_device(list[count - 1]);
  ibv_free_device_list(list);
  REQUIRE(opened != nullptr);
  return opened;
}

/// A verb's result, when errno says the same.
template <class Verb>
int told_twice(Verb verb) {
  errno = 0;
  const int result = verb();
  CHECK(errno == result);
  return result;
}

}  // namespace

TEST_CASE("an object in use is not destroyed, and errno says EBUSY, too", "[abi]") {
  ibv_context* const device = open_soft0();
  ibv_pd* const pd = ibv_alloc_pd(device);
  ibv_comp_channel* const channel = ibv_create_comp_channel(device);
  ibv_cq* const cq = ibv_create_cq(device, 4, nullptr, channel, 0);
  ibv_srq_init_attr srq_attr{};
  srq_attr.attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0};
  ibv_srq* const srq = ibv_create_srq(pd, &srq_attr);
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.srq = srq;
  attr.qp_type = IBV_QPT_RC;
  ibv_qp* const qp = ibv_create_qp(pd, &attr);
  REQUIRE(qp != nullptr);
  CHECK(told_twice([&] { return ibv_dealloc_pd(pd); }) == EBUSY);
  CHECK(told_twice([&] { return ibv_destroy_comp_channel(channel); }) == EBUSY);
  CHECK(told_twice([&] { return ibv_destroy_cq(cq); }) == EBUSY);
  CHECK(told_twice([&] { return ibv_destroy_srq(srq); }) == EBUSY);
  CHECK(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_srq(srq) == 0);
  CHECK(ibv_destroy_cq(cq) == 0);
  CHECK(ibv_destroy_comp_channel(channel) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0);
  CHECK(ibv_close_device(device) == 0);
}

TEST_CASE("a region below a window is not deregistered, and errno says EBUSY, too", "[abi]") {
  ibv_context* const device = open_soft0();
  ibv_pd* const pd = ibv_alloc_pd(device);
  ibv_cq* const cq = ibv_create_cq(device, 4, nullptr, nullptr, 0);
  std::uint64_t word = 0;
  ibv_mr* const mr = ibv_reg_mr(pd, &word, sizeof word, int{IBV_ACCESS_MW_BIND});
  ibv_mw* const mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap.max_send_wr = 1;
  init.qp_type = IBV_QPT_RC;
  ibv_qp* const qp = ibv_create_qp(pd, &init);
  REQUIRE(qp != nullptr);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  REQUIRE(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = qp->qp_num;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  REQUIRE(ibv_query_gid(device, 1, 0, &attr.ah_attr.grh.dgid) == 0);
  REQUIRE(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  attr.qp_state = IBV_QPS_RTS;
  REQUIRE(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  ibv_mw_bind bind{};
  bind.bind_info = {.mr = mr,
                    .addr = reinterpret_cast<std::uintptr_t>(&word),
                    .length = sizeof word,
                    .mw_access_flags = IBV_ACCESS_REMOTE_READ};
  REQUIRE(ibv_bind_mw(qp, mw, &bind) == 0);
  CHECK(told_twice([&] { return ibv_dereg_mr(mr); }) == EBUSY);
  CHECK(ibv_dealloc_mw(mw) == 0);
  CHECK(ibv_dereg_mr(mr) == 0);
  CHECK(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_cq(cq) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0);
  CHECK(ibv_close_device(device) == 0);
}

TEST_CASE("a queue pair has no ECE to query or to set", "[abi]") {
  ibv_context* const device = open_soft0();
  ibv_pd* const pd = ibv_alloc_pd(device);
  ibv_cq* const cq = ibv_create_cq(device, 4, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  ibv_qp* const qp = ibv_create_qp(pd, &init);
  REQUIRE(qp != nullptr);
  ibv_ece ece{.vendor_id = 1, .options = 2, .comp_mask = 0};
  CHECK(told_twice([&] { return ibv_set_ece(qp, &ece); }) == EOPNOTSUPP);
  CHECK(told_twice([&] { return ibv_query_ece(qp, &ece); }) == EOPNOTSUPP);
  CHECK(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_cq(cq) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0);
  CHECK(ibv_close_device(device) == 0);
}

TEST_CASE("paging on demand is told for each transport, and advice reaches the device", "[abi]") {
  ibv_context* const device = open_soft0();
  ibv_device_attr_ex attr{};
  REQUIRE(ibv_query_device_ex(device, nullptr, &attr) == 0);
  CHECK(attr.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
  CHECK((attr.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_ATOMIC) != 0);
  CHECK((attr.odp_caps.per_transport_caps.uc_odp_caps & IBV_ODP_SUPPORT_READ) == 0);
  CHECK((attr.odp_caps.per_transport_caps.ud_odp_caps & IBV_ODP_SUPPORT_SEND) != 0);
  ibv_pd* const pd = ibv_alloc_pd(device);
  ibv_sge range{};
  CHECK(told_twice([&] {
          return ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &range, 1);
        }) == ENOENT);
  CHECK(ibv_dealloc_pd(pd) == 0);
  CHECK(ibv_close_device(device) == 0);
}

TEST_CASE("a device list may be given to free()", "[abi]") {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  REQUIRE(list != nullptr);
  CHECK(list[count] == nullptr);
  std::free(list);
}

TEST_CASE("a verb that refuses what it was asked says so by errno, too", "[abi]") {
  ibv_context* const device = open_soft0();
  ibv_cq* const cq = ibv_create_cq(device, 4, nullptr, nullptr, 0);
  ibv_port_attr port{};
  CHECK(told_twice([&] { return ibv_query_port(device, 9, &port); }) == EINVAL);
  CHECK(told_twice([&] { return ibv_resize_cq(cq, -1); }) == EINVAL);
  CHECK(told_twice([&] { return ibv_req_notify_cq(cq, 0); }) == EINVAL);
  CHECK(ibv_destroy_cq(cq) == 0);
  CHECK(ibv_close_device(device) == 0);
}

TEST_CASE("what a device does not tell is an error, and errno says which, too", "[abi]") {
  ibv_context* const device = open_soft0();
  ibv_device_attr_ex attr{};
  REQUIRE(softverbs_fail_call("ibv_query_device", 1, EIO) == 0);
  CHECK(told_twice([&] { return ibv_query_device_ex(device, nullptr, &attr); }) == EIO);
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK << 1;
  CHECK(told_twice([&] { return ibv_query_rt_values_ex(device, &values); }) == EOPNOTSUPP);
  CHECK(ibv_close_device(device) == 0);
}
