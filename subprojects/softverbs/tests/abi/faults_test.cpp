#include <softverbs/softverbs.h>

#include <infiniband/verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <cstdint>
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

/// A queue pair that writes into its own process: connected with itself.
class writer {
 public:
  writer() {
    REQUIRE(qp_ != nullptr);
    REQUIRE(mr_ != nullptr);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    REQUIRE(ibv_modify_qp(qp_, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
            0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = qp_->qp_num;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    REQUIRE(ibv_query_gid(device_, 1, 0, &attr.ah_attr.grh.dgid) == 0);
    REQUIRE(ibv_modify_qp(qp_, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
            0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 1;  // 8 us
    attr.retry_cnt = 1;
    REQUIRE(ibv_modify_qp(qp_, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  }
  ~writer() {
    CHECK(ibv_destroy_qp(qp_) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_dereg_mr(mr_) == 0);
    CHECK(ibv_dealloc_pd(pd_) == 0);
  }
  writer(const writer&) = delete;
  writer& operator=(const writer&) = delete;

  void post(std::uint64_t id) {
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(&words[0]), sizeof words[0], mr_->lkey};
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(&words[1]);
    wr.wr.rdma.rkey = mr_->rkey;
    ibv_send_wr* bad = nullptr;
    REQUIRE(ibv_post_send(qp_, &wr, &bad) == 0);
  }
  [[nodiscard]] bool poll(ibv_wc& wc) const { return ibv_poll_cq(cq, 1, &wc) == 1; }
  [[nodiscard]] ibv_wc await() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{60};
    ibv_wc wc{};
    while (!poll(wc)) REQUIRE(std::chrono::steady_clock::now() < end);
    return wc;
  }
  [[nodiscard]] ibv_qp* qp() const { return qp_; }

 private:
  soft0 device_;
  ibv_pd* pd_ = ibv_alloc_pd(device_);

 public:
  std::uint64_t words[2] = {4711, 0};
  ibv_cq* cq = ibv_create_cq(device_, 16, nullptr, nullptr, 0);

 private:
  ibv_mr* mr_ =
      ibv_reg_mr(pd_, words, sizeof words, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  ibv_qp_init_attr init_{nullptr, cq, cq, nullptr, {8, 8, 1, 1, 0}, IBV_QPT_RC, 0};
  ibv_qp* qp_ = ibv_create_qp(pd_, &init_);
};

}  // namespace

TEST_CASE("the link of a queue pair is cut, and whole again", "[abi]") {
  writer w;
  REQUIRE(softverbs_cut_link(w.qp(), 1) == 0);
  SECTION("at once") {
    REQUIRE(softverbs_cut_link(w.qp(), 0) == 0);
    w.post(1);
    CHECK(w.await().status == IBV_WC_SUCCESS);
    CHECK(w.words[1] == 4711);
  }
  SECTION("too late for the retries") {
    w.post(1);
    w.post(2);
    CHECK(w.await().status == IBV_WC_RETRY_EXC_ERR);
    CHECK(w.await().status == IBV_WC_WR_FLUSH_ERR);
    CHECK(w.words[1] == 0);
  }
}

TEST_CASE("a delayed link keeps a request for that long", "[abi]") {
  writer w;
  constexpr std::chrono::milliseconds delay{20};
  REQUIRE(softverbs_delay_link(w.qp(), std::chrono::nanoseconds{delay}.count()) == 0);
  const auto start = std::chrono::steady_clock::now();
  w.post(1);
  CHECK(w.await().status == IBV_WC_SUCCESS);
  CHECK(std::chrono::steady_clock::now() >= start + delay);
}

TEST_CASE("a delay that is ended keeps nothing any longer, whatever was posted before", "[abi]") {
  writer w;
  const bool resets = GENERATE(false, true);
  REQUIRE(softverbs_delay_link(w.qp(), std::chrono::nanoseconds{std::chrono::hours{1}}.count()) ==
          0);
  w.post(1);
  ibv_wc wc{};
  CHECK_FALSE(w.poll(wc));
  REQUIRE((resets ? softverbs_reset() : softverbs_delay_link(w.qp(), 0)) == 0);
  CHECK(w.await().status == IBV_WC_SUCCESS);
}

TEST_CASE("the next request completes as it was told, without effect", "[abi]") {
  writer w;
  CHECK(softverbs_complete_next_with(
            w.qp(), static_cast<ibv_wc_status>(IBV_WC_TM_RNDV_INCOMPLETE + 1)) == EINVAL);
  REQUIRE(softverbs_complete_next_with(w.qp(), IBV_WC_REM_OP_ERR) == 0);
  w.post(1);
  w.post(2);
  CHECK(w.await().status == IBV_WC_REM_OP_ERR);
  CHECK(w.await().status == IBV_WC_WR_FLUSH_ERR);
  CHECK(w.words[1] == 0);
}

TEST_CASE("completions are kept back until they are released, in order", "[abi]") {
  writer w;
  REQUIRE(softverbs_withhold_completions(w.cq) == 0);
  ibv_wc wc{};
  for (std::uint64_t id = 1; id <= 3; ++id) {
    w.post(id);
    CHECK_FALSE(w.poll(wc));
  }
  CHECK(w.words[1] == 4711);  // The work itself was done.
  REQUIRE(softverbs_release_completions(w.cq) == 0);
  for (std::uint64_t id = 1; id <= 3; ++id) CHECK(w.await().wr_id == id);
  CHECK_FALSE(w.poll(wc));
}

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

TEST_CASE("a device without ATOMIC WRITE makes no queue pair for it, and refuses it", "[abi]") {
  const bool is_missing = GENERATE(false, true);
  const soft0 device;
  if (is_missing) REQUIRE(softverbs_pretend_missing(SOFTVERBS_ATOMIC_WRITE) == 0);
  ibv_device_attr_ex attr{};
  REQUIRE(ibv_query_device_ex(device, nullptr, &attr) == 0);
  constexpr std::uint64_t atomic_write = std::uint64_t{1} << 40;
  CHECK(((attr.device_cap_flags_ex & atomic_write) == 0) == is_missing);
  ibv_pd* const pd = ibv_alloc_pd(device);
  ibv_cq* const cq = ibv_create_cq(device, 1, nullptr, nullptr, 0);
  ibv_qp_init_attr_ex wanted{};
  wanted.send_cq = wanted.recv_cq = cq;
  wanted.cap = {.max_send_wr = 1,
                .max_recv_wr = 1,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
  wanted.qp_type = IBV_QPT_RC;
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  wanted.pd = pd;
  wanted.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE;
  errno = 0;
  ibv_qp* const qp = ibv_create_qp_ex(device, &wanted);
  CHECK((qp == nullptr) == is_missing);
  if (is_missing) CHECK(errno == EOPNOTSUPP);
  if (qp != nullptr) CHECK(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_cq(cq) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0);
}

TEST_CASE("a device without rate limits says so, and sets none", "[abi]") {
  writer w;
  const auto most_kbps = [&] {
    ibv_device_attr_ex attr{};
    REQUIRE(ibv_query_device_ex(w.qp()->context, nullptr, &attr) == 0);
    return attr.packet_pacing_caps.qp_rate_limit_max;
  };
  ibv_qp_rate_limit_attr limit{};
  limit.rate_limit = 1000;
  CHECK(most_kbps() > 1000);
  CHECK(ibv_modify_qp_rate_limit(w.qp(), &limit) == 0);
  REQUIRE(softverbs_pretend_missing(SOFTVERBS_RATE_LIMITS) == 0);
  CHECK(most_kbps() == 0);
  CHECK(ibv_modify_qp_rate_limit(w.qp(), &limit) == EOPNOTSUPP);
  REQUIRE(softverbs_reset() == 0);
  REQUIRE(softverbs_fail_call("ibv_modify_qp_rate_limit", 1, ENOMEM) == 0);
  CHECK(ibv_modify_qp_rate_limit(w.qp(), &limit) == ENOMEM);
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
