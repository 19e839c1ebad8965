#include <softverbs/softverbs.h>

#include <infiniband/verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>

namespace {

/// soft0, opened; after the test all faults are gone.
class soft0 {
 public:
  soft0() {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    REQUIRE(list != nullptr);
    REQUIRE(count > 0);
    CHECK(list[count] == nullptr);
    REQUIRE(std::strcmp(ibv_get_device_name(list[count - 1]), "soft0") == 0);
    ctx_ = ibv_open_device(list[count - 1]);
    ibv_free_device_list(list);
    REQUIRE(ctx_ != nullptr);
  }
  ~soft0() {
    CHECK(softverbs_reset() == 0);
    CHECK(ibv_close_device(ctx_) == 0);
  }
  soft0(const soft0&) = delete;
  soft0& operator=(const soft0&) = delete;

  operator ibv_context*() const { return ctx_; }
  [[nodiscard]] ibv_device_attr attributes() const {
    ibv_device_attr attr{};
    REQUIRE(ibv_query_device(ctx_, &attr) == 0);
    return attr;
  }

 private:
  ibv_context* ctx_ = nullptr;
};

ibv_port_attr port_of(ibv_context* ctx) {
  ibv_port_attr attr{};
  REQUIRE(ibv_query_port(ctx, 1, &attr) == 0);
  return attr;
}

}  // namespace

TEST_CASE("the n-th call fails with the error asked for, and only that call", "[abi]") {
  const soft0 device;
  REQUIRE(softverbs_fail_call("ibv_alloc_pd", 2, ENOSPC) == 0);
  ibv_pd* const first = ibv_alloc_pd(device);
  REQUIRE(first != nullptr);
  errno = 0;
  CHECK(ibv_alloc_pd(device) == nullptr);
  CHECK(errno == ENOSPC);
  ibv_pd* const third = ibv_alloc_pd(device);
  REQUIRE(third != nullptr);
  CHECK(ibv_dealloc_pd(first) == 0);
  CHECK(ibv_dealloc_pd(third) == 0);
}

TEST_CASE("all forms of registering are one verb to a fault", "[abi]") {
  const soft0 device;
  ibv_pd* const pd = ibv_alloc_pd(device);
  char bytes[64];
  for (const char* name : {"ibv_reg_mr", "ibv_reg_mr_iova2"}) {
    // An access that is no constant makes the macro call ibv_reg_mr_iova2.
    for (volatile int access : {0, int{IBV_ACCESS_LOCAL_WRITE}}) {
      REQUIRE(softverbs_fail_call(name, 1, EPERM) == 0);
      errno = 0;
      CHECK(ibv_reg_mr(pd, bytes, sizeof bytes, access) == nullptr);
      CHECK(errno == EPERM);
    }
  }
  CHECK(ibv_dealloc_pd(pd) == 0);
}

TEST_CASE("verbs that go through the context fail on demand as well", "[abi]") {
  const soft0 device;
  ibv_cq* const cq = ibv_create_cq(device, 4, nullptr, nullptr, 0);
  REQUIRE(cq != nullptr);
  ibv_wc wc;
  REQUIRE(softverbs_fail_call("ibv_poll_cq", 1, EIO) == 0);
  CHECK(ibv_poll_cq(cq, 1, &wc) == -1);
  CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
  CHECK(ibv_destroy_cq(cq) == 0);
}

TEST_CASE("extended polls and posts fail on demand as well", "[abi]") {
  const soft0 device;
  ibv_pd* const pd = ibv_alloc_pd(device);
  ibv_cq_init_attr_ex queue{};
  queue.cqe = 4;
  ibv_cq_ex* const cq = ibv_create_cq_ex(device, &queue);
  REQUIRE(cq != nullptr);
  ibv_poll_cq_attr none{};
  REQUIRE(softverbs_fail_call("ibv_start_poll", 1, EIO) == 0);
  CHECK(ibv_start_poll(cq, &none) == EIO);
  CHECK(ibv_start_poll(cq, &none) == ENOENT);

  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
  ibv_qp* const qp = ibv_create_qp_ex(device, &attr);
  REQUIRE(qp != nullptr);
  ibv_qp_ex* const extended = ibv_qp_to_qp_ex(qp);
  REQUIRE(softverbs_fail_call("ibv_wr_complete", 1, ENOBUFS) == 0);
  ibv_wr_start(extended);
  CHECK(ibv_wr_complete(extended) == ENOBUFS);
  ibv_wr_start(extended);
  CHECK(ibv_wr_complete(extended) == 0);
  CHECK(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0);
}

TEST_CASE("a fault for an unknown verb, call or error is refused", "[abi]") {
  CHECK(softverbs_fail_call("ibv_frobnicate", 1, EIO) == EINVAL);
  CHECK(softverbs_fail_call("ibv_alloc_pd", 0, EIO) == EINVAL);
  CHECK(softverbs_fail_call("ibv_alloc_pd", 1, 0) == EINVAL);
  CHECK(softverbs_fail_call(nullptr, 1, EIO) == EINVAL);
}

TEST_CASE("a pretended limit is said until reset, and cannot be above the truth", "[abi]") {
  const soft0 device;
  const ibv_device_attr truth = device.attributes();
  REQUIRE(softverbs_pretend_limit(SOFTVERBS_MAX_CQE, 16) == 0);
  REQUIRE(softverbs_pretend_limit(SOFTVERBS_MAX_MESSAGE_BYTES, 4096) == 0);
  CHECK(device.attributes().max_cqe == 16);
  CHECK(port_of(device).max_msg_sz == 4096);
  CHECK(ibv_create_cq(device, 17, nullptr, nullptr, 0) == nullptr);
  CHECK(softverbs_pretend_limit(SOFTVERBS_MAX_QP, std::uint64_t{1} << 40) == EINVAL);

  REQUIRE(softverbs_reset() == 0);
  CHECK(device.attributes().max_cqe == truth.max_cqe);
  CHECK(port_of(device).max_msg_sz == 1u << 30);
}

TEST_CASE("a missing capability is not said, and its verbs are not supported", "[abi]") {
  const soft0 device;
  ibv_pd* const pd = ibv_alloc_pd(device);
  REQUIRE(softverbs_pretend_missing(SOFTVERBS_MEMORY_WINDOWS) == 0);
  REQUIRE(softverbs_pretend_missing(SOFTVERBS_ATOMICS) == 0);
  REQUIRE(softverbs_pretend_missing(SOFTVERBS_SRQ) == 0);
  const ibv_device_attr attr = device.attributes();
  CHECK((attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW) == 0);
  CHECK(attr.atomic_cap == IBV_ATOMIC_NONE);
  CHECK(attr.max_srq == 0);
  errno = 0;
  CHECK(ibv_alloc_mw(pd, IBV_MW_TYPE_1) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  ibv_srq_init_attr srq{};
  srq.attr.max_wr = srq.attr.max_sge = 1;
  errno = 0;
  CHECK(ibv_create_srq(pd, &srq) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  CHECK(ibv_dealloc_pd(pd) == 0);
}

TEST_CASE("a raised event comes out of the context, and one about another device is refused",
          "[abi]") {
  const soft0 device;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_PORT_ERR;
  event.element.port_num = 2;
  CHECK(softverbs_raise_async_event(device, &event) == EINVAL);
  event.element.port_num = 1;
  REQUIRE(softverbs_raise_async_event(device, &event) == 0);
  ibv_async_event got{};
  REQUIRE(ibv_get_async_event(device, &got) == 0);
  CHECK(got.event_type == IBV_EVENT_PORT_ERR);
  CHECK(got.element.port_num == 1);
  ibv_ack_async_event(&got);
}

TEST_CASE("faults come and go while somebody waits to destroy an object", "[abi]") {
  const soft0 device;
  ibv_cq* const kept = ibv_create_cq(device, 4, nullptr, nullptr, 0);
  ibv_cq* const leaving = ibv_create_cq(device, 4, nullptr, nullptr, 0);
  REQUIRE(softverbs_withhold_completions(kept) == 0);
  REQUIRE(softverbs_withhold_completions(leaving) == 0);
  ibv_async_event event{};
  event.event_type = IBV_EVENT_CQ_ERR;
  event.element.cq = leaving;
  REQUIRE(softverbs_raise_async_event(device, &event) == 0);
  REQUIRE(ibv_get_async_event(device, &event) == 0);
  auto destroyed = std::async(std::launch::async, [&] { return ibv_destroy_cq(leaving); });
  // The acknowledgement that it waits for comes after this.
  CHECK(softverbs_release_completions(kept) == 0);
  CHECK(softverbs_reset() == 0);
  ibv_ack_async_event(&event);
  CHECK(destroyed.get() == 0);
  CHECK(ibv_destroy_cq(kept) == 0);
}

TEST_CASE("what a forked child inherits answers EIO, and is destroyed without effect", "[abi]") {
  const soft0 device;
  ibv_pd* const pd = ibv_alloc_pd(device);
  REQUIRE(pd != nullptr);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool refused = ibv_alloc_pd(device) == nullptr && errno == EIO;
    const bool ended = ibv_dealloc_pd(pd) == 0 && ibv_close_device(device) == 0;
    ::_exit(refused && ended ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(ibv_dealloc_pd(pd) == 0);
}

TEST_CASE("soft0 is hidden when SOFTVERBS is off", "[abi]") {
  ::setenv("SOFTVERBS", "off", 1);
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  ::unsetenv("SOFTVERBS");
  if (list == nullptr) return;  // No real devices either, and the real library's error.
  for (int i = 0; i < count; ++i) CHECK(std::strcmp(ibv_get_device_name(list[i]), "soft0") != 0);
  ibv_free_device_list(list);
}

TEST_CASE("a context's command descriptor can be duplicated, but not imported", "[abi]") {
  const soft0 device;
  const int copy = ::dup(static_cast<ibv_context*>(device)->cmd_fd);
  REQUIRE(copy != -1);
  errno = 0;
  CHECK(ibv_import_device(copy) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  CHECK(::close(copy) == 0);
}
