#include "control_fixture.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

using namespace softverbs;

namespace {

/// errno of a refused creation, 0 when it was not.
int refusal(const device& dev, ibv_qp_init_attr attr) {
  errno = 0;
  ibv_qp* qp = verb::create_qp(dev.pd, &attr);
  if (qp == nullptr) return errno;
  verb::destroy_qp(qp);
  return 0;
}

int refusal(const device& dev, ibv_qp_init_attr_ex attr) {
  errno = 0;
  ibv_qp* qp = verb::create_qp_ex(dev.ctx, &attr);
  if (qp == nullptr) return errno;
  verb::destroy_qp(qp);
  return 0;
}

ibv_qp_attr query(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(verb::query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
  return attr;
}

}  // namespace

TEST_CASE("a queue pair is created with what was asked for, or not at all", "[qp]") {
  const device dev;
  auto attr = dev.wanted(IBV_QPT_RC);
  ibv_qp* qp = verb::create_qp(dev.pd, &attr);
  REQUIRE(qp != nullptr);
  CHECK(qp->state == IBV_QPS_RESET);
  CHECK(qp->qp_num > 1);
  CHECK(attr.cap.max_send_wr >= depth);
  CHECK(attr.cap.max_inline_data >= inline_max);
  CHECK(verb::qp_to_qp_ex(qp) == nullptr);
  CHECK(verb::destroy_cq(dev.cq) == EBUSY);
  CHECK(verb::destroy_qp(qp) == 0);

  const auto refused_with = [&](auto change) {
    auto wrong = dev.wanted(IBV_QPT_RC);
    change(wrong);
    return refusal(dev, wrong);
  };
  CHECK(refused_with([](auto& a) { a.cap.max_send_wr = 0xffffffff; }) == EINVAL);
  CHECK(refused_with([](auto& a) { a.cap.max_recv_wr = 0xffffffff; }) == EINVAL);
  CHECK(refused_with([](auto& a) { a.cap.max_send_sge = 0xffff; }) == EINVAL);
  CHECK(refused_with([](auto& a) { a.cap.max_recv_sge = 0xffff; }) == EINVAL);
  CHECK(refused_with([](auto& a) { a.cap.max_inline_data = 1 << 20; }) == EINVAL);
  CHECK(refused_with([](auto& a) { a.send_cq = nullptr; }) == EINVAL);
  CHECK(refused_with([](auto& a) { a.recv_cq = nullptr; }) == EINVAL);
  for (const auto type : {IBV_QPT_RAW_PACKET, IBV_QPT_XRC_RECV, IBV_QPT_DRIVER})
    CHECK(refused_with([type](auto& a) { a.qp_type = type; }) == EOPNOTSUPP);
}

TEST_CASE("an extended queue pair serves what it knows and says what it does not", "[qp]") {
  const device dev;
  constexpr std::uint64_t send = IBV_QP_EX_WITH_SEND;
  ibv_qp* qp = dev.create_ex(IBV_QPT_RC, send);
  CHECK(verb::qp_to_qp_ex(qp) != nullptr);
  CHECK(verb::destroy_qp(qp) == 0);

  const auto refused_with = [&](ibv_qp_type type, auto change) {
    auto wrong = dev.wanted_ex(type, send);
    change(wrong);
    return refusal(dev, wrong);
  };
  CHECK(refused_with(IBV_QPT_UC, [](auto& a) { a.comp_mask = IBV_QP_INIT_ATTR_PD; }) == 0);
  CHECK(refused_with(IBV_QPT_RC, [](auto& a) { a.comp_mask = 0; }) == EINVAL);
  CHECK(refused_with(IBV_QPT_RC, [](auto& a) { a.comp_mask |= 1u << 31; }) == EINVAL);
  for (const auto part : {IBV_QP_INIT_ATTR_XRCD, IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
                          IBV_QP_INIT_ATTR_IND_TABLE, IBV_QP_INIT_ATTR_RX_HASH})
    CHECK(refused_with(IBV_QPT_RC, [part](auto& a) { a.comp_mask |= part; }) == EOPNOTSUPP);
  CHECK(refused_with(IBV_QPT_RC, [](auto& a) {
          a.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
          a.create_flags = IBV_QP_CREATE_SCATTER_FCS;
        }) == EOPNOTSUPP);
  const auto operation = [&](ibv_qp_type type, std::uint64_t flags) {
    return refused_with(type, [flags](auto& a) { a.send_ops_flags = flags; });
  };
  CHECK(operation(IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_READ) == 0);
  CHECK(operation(IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_READ) == EOPNOTSUPP);
  CHECK(operation(IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE) == EOPNOTSUPP);
  CHECK(operation(IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE) == 0);
  CHECK(operation(IBV_QPT_UC, IBV_QP_EX_WITH_ATOMIC_WRITE) == EOPNOTSUPP);
  CHECK(operation(IBV_QPT_RC, IBV_QP_EX_WITH_TSO) == EOPNOTSUPP);
}

TEST_CASE("a query tells what was set, and a reset forgets it", "[qp]") {
  const device dev;
  for (const auto type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    ibv_qp* qp = dev.create(type);
    CHECK(query(qp).qp_state == IBV_QPS_RESET);
    drain_ready(qp);
    const auto attr = query(qp);
    CHECK(attr.qp_state == IBV_QPS_SQD);
    CHECK(attr.cur_qp_state == IBV_QPS_SQD);
    CHECK(qp->state == IBV_QPS_SQD);
    CHECK(attr.sq_psn == 0x222222);
    CHECK(attr.port_num == 1);
    CHECK(attr.cap.max_recv_wr == depth);
    if (type == IBV_QPT_UD) CHECK(attr.qkey == 0x1234);
    if (type != IBV_QPT_UD) {
      CHECK(attr.rq_psn == 0x111111);
      CHECK(attr.path_mtu == IBV_MTU_1024);
      CHECK(attr.dest_qp_num == qp->qp_num);
      CHECK(inside(qp).local_node->is_local(inside(qp).peer));
    }
    if (type == IBV_QPT_RC) {
      CHECK(attr.max_rd_atomic == 3);
      CHECK(attr.max_dest_rd_atomic == 5);
      CHECK(attr.min_rnr_timer == 12);
      CHECK(attr.timeout == 14);
      CHECK(inside(qp).requester.retries_left == 6);
      CHECK(inside(qp).requester.rnr_retries_left == 7);
    }
    REQUIRE(move_to(qp, IBV_QPS_RESET) == 0);
    CHECK(query(qp).qp_state == IBV_QPS_RESET);
    CHECK(query(qp).sq_psn == 0);
    CHECK(query(qp).dest_qp_num == 0);
    CHECK(verb::destroy_qp(qp) == 0);
  }
}

TEST_CASE("attributes beyond the mask are not looked at", "[qp]") {
  const device dev;
  ibv_qp* const qp = dev.create(IBV_QPT_RC);
  ibv_qp_attr attr;
  std::memset(&attr, 0xff, sizeof attr);  // A program may leave them uninitialized.
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.pkey_index = 0;
  attr.qp_access_flags = 0;
  CHECK(verb::modify_qp(qp, &attr, required_mask(IBV_QPT_RC, IBV_QPS_INIT)) == 0);
  attr.qp_state = IBV_QPS_RESET;
  CHECK(verb::modify_qp(qp, &attr, IBV_QP_STATE) == 0);
  CHECK(verb::destroy_qp(qp) == 0);
}

TEST_CASE("a refused modification leaves everything as it was", "[qp]") {
  const device dev;
  ibv_qp* qp = dev.create(IBV_QPT_RC);
  const auto refused = [&](ibv_qp_state to, auto change) {
    auto attr = good_attributes(*qp);
    attr.qp_state = to;
    change(attr);
    const auto before = query(qp);
    const int error = verb::modify_qp(qp, &attr, required_mask(IBV_QPT_RC, to));
    CHECK(query(qp).qp_state == before.qp_state);
    CHECK(query(qp).port_num == before.port_num);
    CHECK(query(qp).path_mtu == before.path_mtu);
    return error;
  };
  CHECK(refused(IBV_QPS_INIT, [](auto& a) { a.port_num = 2; }) == EINVAL);
  CHECK(refused(IBV_QPS_INIT, [](auto& a) { a.pkey_index = 1; }) == EINVAL);
  CHECK(refused(IBV_QPS_INIT, [](auto& a) { a.qp_access_flags = 1u << 31; }) == EINVAL);
  CHECK(refused(IBV_QPS_RTR, [](auto&) {}) == EINVAL);
  REQUIRE(move_to(qp, IBV_QPS_INIT) == 0);

  CHECK(refused(IBV_QPS_RTR, [](auto& a) { a.ah_attr.is_global = 0; }) == EINVAL);
  CHECK(refused(IBV_QPS_RTR, [](auto& a) { a.ah_attr.grh.sgid_index = 255; }) == EINVAL);
  CHECK(refused(IBV_QPS_RTR, [](auto& a) { a.ah_attr.grh.dgid = {}; }) == EINVAL);
  CHECK(refused(IBV_QPS_RTR, [](auto& a) { a.ah_attr.grh.dgid.raw[0] = 0xff; }) == EINVAL);
  CHECK(refused(IBV_QPS_RTR, [](auto& a) { a.ah_attr.port_num = 0; }) == EINVAL);
  CHECK(refused(IBV_QPS_RTR, [](auto& a) { a.dest_qp_num = 1u << 24; }) == EINVAL);
  CHECK(refused(IBV_QPS_RTR, [](auto& a) { a.path_mtu = static_cast<ibv_mtu>(6); }) == EINVAL);
  CHECK(refused(IBV_QPS_RTR, [](auto& a) { a.path_mtu = static_cast<ibv_mtu>(0); }) == EINVAL);
  CHECK(refused(IBV_QPS_RTR, [](auto& a) { a.min_rnr_timer = 32; }) == EINVAL);
  CHECK(refused(IBV_QPS_RTR, [](auto& a) { a.max_dest_rd_atomic = 200; }) == EINVAL);
  REQUIRE(move_to(qp, IBV_QPS_RTR) == 0);

  CHECK(refused(IBV_QPS_RTS, [](auto& a) { a.timeout = 32; }) == EINVAL);
  CHECK(refused(IBV_QPS_RTS, [](auto& a) { a.retry_cnt = 8; }) == EINVAL);
  CHECK(refused(IBV_QPS_RTS, [](auto& a) { a.rnr_retry = 8; }) == EINVAL);
  CHECK(refused(IBV_QPS_RTS, [](auto& a) { a.max_rd_atomic = 200; }) == EINVAL);
  REQUIRE(move_to(qp, IBV_QPS_RTS) == 0);
  CHECK(verb::destroy_qp(qp) == 0);
}

TEST_CASE("what soft0 does not do is refused as unsupported, what is unknown as invalid", "[qp]") {
  const device dev;
  ibv_qp* qp = dev.create(IBV_QPT_RC);
  drain_ready(qp);
  auto attr = good_attributes(*qp);
  CHECK(verb::modify_qp(qp, &attr, IBV_QP_ALT_PATH) == EOPNOTSUPP);
  CHECK(verb::modify_qp(qp, &attr, IBV_QP_CAP) == EOPNOTSUPP);
  CHECK(verb::modify_qp(qp, &attr, IBV_QP_RATE_LIMIT) == EOPNOTSUPP);
  attr.path_mig_state = IBV_MIG_ARMED;
  CHECK(verb::modify_qp(qp, &attr, IBV_QP_PATH_MIG_STATE) == EOPNOTSUPP);
  CHECK(verb::modify_qp(qp, &attr, 1 << 30) == EINVAL);
  CHECK(verb::modify_qp(qp, &attr, 0) == 0);
  CHECK(verb::destroy_qp(qp) == 0);
}

TEST_CASE("the state that the program assumes must be the real one", "[qp]") {
  const device dev;
  ibv_qp* qp = dev.create(IBV_QPT_UD);
  drain_ready(qp);
  auto attr = good_attributes(*qp);
  attr.qp_state = IBV_QPS_RTS;
  attr.cur_qp_state = IBV_QPS_RTS;
  CHECK(verb::modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL);
  attr.cur_qp_state = IBV_QPS_SQD;
  CHECK(verb::modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE) == 0);
  CHECK(query(qp).qp_state == IBV_QPS_RTS);
  CHECK(verb::destroy_qp(qp) == 0);
}

TEST_CASE("receives are refused in RESET, beyond the capacity, and next to an SRQ", "[qp]") {
  const device dev;
  ibv_qp* qp = dev.create(IBV_QPT_UD);
  ibv_sge list[list_max + 1]{};
  ibv_recv_wr wr{};
  wr.sg_list = list;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  CHECK(verb::post_recv(qp, &wr, &bad) == EINVAL);
  CHECK(bad == &wr);
  REQUIRE(move_to(qp, IBV_QPS_INIT) == 0);
  wr.num_sge = list_max + 1;
  CHECK(verb::post_recv(qp, &wr, &bad) == EINVAL);
  wr.num_sge = 1;
  for (std::uint32_t i = 0; i < depth; ++i) CHECK(verb::post_recv(qp, &wr, nullptr) == 0);
  CHECK(verb::post_recv(qp, &wr, &bad) == ENOMEM);
  CHECK(verb::destroy_qp(qp) == 0);

  ibv_srq_init_attr srq_attr{};
  srq_attr.attr.max_wr = srq_attr.attr.max_sge = 1;
  ibv_srq* srq = verb::create_srq(dev.pd, &srq_attr);
  REQUIRE(srq != nullptr);
  auto attr = dev.wanted(IBV_QPT_RC);
  attr.srq = srq;
  qp = verb::create_qp(dev.pd, &attr);
  REQUIRE(qp != nullptr);
  CHECK(attr.cap.max_recv_wr == 0);
  CHECK(verb::destroy_srq(srq) == EBUSY);
  REQUIRE(move_to(qp, IBV_QPS_INIT) == 0);
  CHECK(verb::post_recv(qp, &wr, &bad) == EINVAL);
  CHECK(verb::destroy_qp(qp) == 0);
  CHECK(verb::destroy_srq(srq) == 0);
}

TEST_CASE("the error state flushes what was posted, and what is posted then", "[qp]") {
  const device dev;
  ibv_qp* qp = dev.create(IBV_QPT_RC);
  drain_ready(qp);
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  ibv_recv_wr receive{};
  for (int round = 0; round < 2; ++round) {
    send.wr_id = 10 + static_cast<std::uint64_t>(round);
    receive.wr_id = 20 + static_cast<std::uint64_t>(round);
    CHECK(verb::post_send(qp, &send, nullptr) == 0);
    CHECK(verb::post_recv(qp, &receive, nullptr) == 0);
    if (round == 0) REQUIRE(move_to(qp, IBV_QPS_ERR) == 0);
  }
  ibv_wc flushed[5];
  REQUIRE(verb::poll_cq(dev.cq, 5, flushed) == 4);
  for (const std::uint64_t wr_id : {10u, 11u, 20u, 21u})
    CHECK(std::count_if(flushed, flushed + 4, [=](const ibv_wc& wc) {
            return wc.wr_id == wr_id && wc.status == IBV_WC_WR_FLUSH_ERR;
          }) == 1);
  CHECK(verb::destroy_qp(qp) == 0);
}

TEST_CASE("completions of a queue pair that is gone free no WQE of the next one", "[qp]") {
  const device dev;
  ibv_qp* qp = dev.create(IBV_QPT_RC);
  const std::uint32_t number = qp->qp_num;
  drain_ready(qp);
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  for (std::uint32_t i = 0; i < depth; ++i) REQUIRE(verb::post_send(qp, &send, nullptr) == 0);
  REQUIRE(move_to(qp, IBV_QPS_ERR) == 0);
  do {  // A number is given out again after all the others.
    REQUIRE(verb::destroy_qp(qp) == 0);
    qp = dev.create(IBV_QPT_RC);
  } while (qp->qp_num != number);
  drain_ready(qp);
  ibv_wc old[depth];
  REQUIRE(verb::poll_cq(dev.cq, 2, old) == 2);
  for (std::uint32_t i = 0; i < depth; ++i) CHECK(verb::post_send(qp, &send, nullptr) == 0);
  CHECK(verb::post_send(qp, &send, nullptr) == ENOMEM);
  CHECK(verb::destroy_qp(qp) == 0);
}

TEST_CASE("a reset takes the completions of its queue pair away, and no others", "[qp]") {
  const device dev;
  auto& cq = *reinterpret_cast<completion_queue*>(dev.cq);
  ibv_qp* const qp = dev.create(IBV_QPT_RC);
  ibv_qp* const other = dev.create(IBV_QPT_RC);
  const auto fail_one = [](ibv_qp* of, std::uint64_t wr_id) {
    ibv_send_wr send{};
    send.wr_id = wr_id;
    send.opcode = IBV_WR_SEND;
    CHECK(verb::post_send(of, &send, nullptr) == 0);
    REQUIRE(move_to(of, IBV_QPS_ERR) == 0);
  };
  const auto fail_both = [&](std::uint64_t wr_id) {
    fail_one(qp, wr_id);
    fail_one(other, wr_id + 1);
  };
  drain_ready(qp);
  drain_ready(other);
  fail_both(10);
  fail_both(20);
  withhold(cq);
  fail_both(30);
  REQUIRE(move_to(qp, IBV_QPS_RESET) == 0);
  const auto expect_others = [&](std::initializer_list<std::uint64_t> wr_ids) {
    ibv_wc wc{};
    for (const std::uint64_t wr_id : wr_ids) {
      REQUIRE(verb::poll_cq(dev.cq, 1, &wc) == 1);
      CHECK(wc.qp_num == other->qp_num);
      CHECK(wc.wr_id == wr_id);
    }
    CHECK(verb::poll_cq(dev.cq, 1, &wc) == 0);
  };
  expect_others({11, 21});
  release_withheld(cq);
  expect_others({31});

  drain_ready(qp);  // All its WQEs are free.
  for (std::uint32_t i = 0; i < depth; ++i) fail_one(qp, 40);
  ibv_wc own[depth + 1];
  CHECK(verb::poll_cq(dev.cq, depth + 1, own) == depth);
  CHECK(verb::destroy_qp(other) == 0);
  CHECK(verb::destroy_qp(qp) == 0);
}

TEST_CASE("a drained send queue tells when it was asked to", "[qp]") {
  const device dev;
  ibv_qp* qp = dev.create(IBV_QPT_RC);
  for (const auto to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) REQUIRE(move_to(qp, to) == 0);
  auto attr = good_attributes(*qp);
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  REQUIRE(verb::modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
  ibv_async_event event{};
  REQUIRE(soft(dev.ctx).async.pop(event) == 0);
  CHECK(event.event_type == IBV_EVENT_SQ_DRAINED);
  CHECK(event.element.qp == qp);
  CHECK(query(qp).sq_draining == 0);
  attr.qp_state = IBV_QPS_RTS;
  REQUIRE(verb::modify_qp(qp, &attr, IBV_QP_STATE) == 0);
  CHECK(query(qp).en_sqd_async_notify == 0);
  qp->events_completed = 1;  // Does what ibv_ack_async_event does.
  CHECK(verb::destroy_qp(qp) == 0);
}

TEST_CASE("what requests ask of a queue pair fills a cache line, and what they change the next",
          "[qp]") {
  const device dev;
  ibv_qp* handle = dev.create(IBV_QPT_RC);
  const queue_pair& qp = inside(handle);
  const auto line_of = [&qp](const auto& member) {
    return (reinterpret_cast<const std::byte*>(&member) - reinterpret_cast<const std::byte*>(&qp)) /
           64;
  };
  CHECK(line_of(qp.wqes) == line_of(qp.local_node));
  CHECK(line_of(qp.sends) == line_of(qp.local_node) + 1);
  CHECK(line_of(qp.requester.waits) == line_of(qp.sends));
  CHECK(sizeof(qp_slot) == std::size_t{3} * 64);
  CHECK(verb::destroy_qp(handle) == 0);
}
