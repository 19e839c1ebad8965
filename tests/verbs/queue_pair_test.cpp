#include <cordma/verbs/queue_pair.hpp>

#include <cordma/base/error.hpp>
#include "support/skip.hpp"
#include "support/verbs_faults.hpp"
#include "verbs/loopback.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>

using namespace cordma::verbs;
using namespace cordma::verbs::test;
namespace verbs = cordma::verbs;  // access(2) is there too.
using Catch::Matchers::Contains;

TEST_CASE("a queue pair goes RESET, INIT, RTR, RTS, ERROR, RESET and shows each state",
          "[verbs][device][N8]") {
  using enum queue_pair_state;
  loopback l;
  CHECK(l.qp.state() == reset);
  CHECK(l.qp.query_state() == reset);
  l.qp.to_init(l.port.number, 0, verbs::access::remote_write);
  CHECK(l.qp.state() == init);
  CHECK(l.qp.query_state() == init);
  l.qp.to_rtr(l.rtr());
  CHECK(l.qp.state() == rtr);
  CHECK(l.qp.query_state() == rtr);
  l.qp.to_rts(loopback::rts());
  CHECK(l.qp.state() == rts);
  CHECK(l.qp.query_state() == rts);
  l.qp.to_error();
  CHECK(l.qp.state() == error);
  CHECK(l.qp.query_state() == error);
  l.qp.to_reset();
  CHECK(l.qp.state() == reset);
  CHECK(l.qp.query_state() == reset);
  l.connect();
  CHECK(l.qp.query_state() == rts);
}

TEST_CASE("a transition that skips a state is refused and changes nothing", "[verbs][device][N8]") {
  loopback l;
  const cordma::failure failure = failure_of([&] { l.qp.to_rtr(l.rtr()); });
  CHECK(failure.code == cordma::errc::illegal_transition);
  CHECK_THAT(failure.to_string(), Contains("RESET to RTR") && Contains("goes to: RESET, INIT"));
  CHECK(l.qp.query_state() == queue_pair_state::reset);
}

TEST_CASE("what a peer may do is changed while the queue pair is ready", "[verbs][device][N8]") {
  loopback l;
  const cordma::failure early = failure_of([&] { l.qp.allow(verbs::access::remote_read); });
  CHECK(early.code == cordma::errc::illegal_transition);
  CHECK_THAT(early.to_string(), Contains("in RESET; in RTS"));
  l.connect();
  memory_region target{l.pd, l.bytes.data(), l.bytes.size(),
                       verbs::access::local_write | verbs::access::remote_write};
  const auto write = [&] {
    raw::request request{
        IBV_WR_RDMA_WRITE, raw::piece(l.mr.address(), 64, l.mr.lkey()),
        raw::remote{reinterpret_cast<std::uint64_t>(l.bytes.data()) + 4096, target.rkey()}};
    REQUIRE(raw::try_post(l.qp, request) == 0);
    std::array<ibv_wc, 1> wc{};
    while (l.cq.poll(wc) == 0) {
    }
    return wc[0].status;
  };
  l.qp.allow(verbs::access::remote_write);
  CHECK(l.qp.query_state() == queue_pair_state::rts);
  CHECK(write() == IBV_WC_SUCCESS);
  l.qp.allow(verbs::access::none);
  CHECK(write() == IBV_WC_REM_INV_REQ_ERR);
}

TEST_CASE("an unreliable connection sends and writes, and has no READs or atomics",
          "[verbs][device][N8]") {
  loopback l;
  queue_pair uc{l.pd,
                l.cq,
                l.cq,
                {.send_wr_max = 4, .recv_wr_max = 4},
                nullptr,
                nullptr,
                queue_pair_type::uc};
  uc.to_init(l.port.number, 0, verbs::access::remote_write);
  rtr_attributes to_itself = l.rtr();
  to_itself.dest_qpn = uc.num();
  uc.to_rtr(to_itself);
  uc.to_rts(loopback::rts());
  CHECK(uc.query_state() == queue_pair_state::rts);
  CHECK(uc.rd_atomic_max() == 0);
  memory_region target{l.pd, l.bytes.data(), l.bytes.size(),
                       verbs::access::local_write | verbs::access::remote_write};
  REQUIRE(raw::try_post(uc, raw::receive{raw::piece(l.mr.address(), 64, l.mr.lkey()), 1}) == 0);
  raw::request write{
      IBV_WR_RDMA_WRITE_WITH_IMM, raw::piece(l.mr.address() + 4096, 64, l.mr.lkey()),
      raw::remote{reinterpret_cast<std::uint64_t>(l.bytes.data()) + 2048, target.rkey()}};
  l.bytes[4096] = std::byte{7};
  write.wr.imm_data = 7;
  REQUIRE(raw::try_post(uc, write) == 0);
  for (const ibv_wc& wc : l.reap(2)) CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(l.bytes[2048] == std::byte{7});
}

TEST_CASE("a queue pair with a rate limit is never faster, or names what the device lacks",
          "[verbs][device]") {
  loopback l;
  const device_limits& limits = l.ctx.limits();
  l.connect();
  if ((limits.rate_limited_types & (1u << IBV_QPT_RC)) == 0) {
    const cordma::failure why = failure_of([&] { l.qp.limit_rate(80); });
    CHECK(why.code == cordma::errc::not_supported);
    CHECK_THAT(why.to_string(), Contains("RC") && Contains("packet pacing"));
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  l.qp.limit_rate(80, 64);  // 10 bytes each millisecond.
  for (int n = 0; n < 6; ++n) {
    REQUIRE(l.post_recv() == 0);
    REQUIRE(l.post_send() == 0);
    for (const ibv_wc& wc : l.reap(2)) CHECK(wc.status == IBV_WC_SUCCESS);
  }
  // The last message need not be paid for before it goes, nor a burst of 64 bytes.
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::microseconds{25'600});
  l.qp.limit_rate(0);
  REQUIRE(l.post_recv() == 0);
  REQUIRE(l.post_send() == 0);
  for (const ibv_wc& wc : l.reap(2)) CHECK(wc.status == IBV_WC_SUCCESS);
}

TEST_CASE("a rate limit out of the device's range, or of the queue pair's time, is refused by name",
          "[verbs][device]") {
  loopback l;
  const device_limits& limits = l.ctx.limits();
  if ((limits.rate_limited_types & (1u << IBV_QPT_RC)) == 0)
    CORDMA_SKIP("the device limits no rates");
  const cordma::failure early = failure_of([&] { l.qp.limit_rate(limits.rate_limit_min_kbps); });
  CHECK(early.code == cordma::errc::illegal_transition);
  CHECK_THAT(early.to_string(), Contains("RESET") && Contains("RTS"));
  l.connect();
  const cordma::failure fast = failure_of([&] { l.qp.limit_rate(limits.rate_limit_max_kbps + 1); });
  CHECK(fast.code == cordma::errc::limit_exceeded);
  CHECK_THAT(fast.to_string(),
             Contains("kbps") && Contains(std::to_string(limits.rate_limit_max_kbps)));
}

TEST_CASE("an attribute that the port refuses is named", "[verbs][device][N8]") {
  loopback l;
  CHECK_THAT(failure_of([&] { l.qp.to_init(9); }).to_string(), Contains("port 9"));
  verbs_faults::fail_call(1, EINVAL);  // Injected: not every device checks index or MTU itself.
  CHECK_THAT(failure_of([&] { l.qp.to_init(l.port.number, 60000); }).to_string(),
             Contains("pkey_index 60000 is outside the port's table"));
  l.qp.to_init(l.port.number);
  rtr_attributes wrong = l.rtr();
  wrong.peer.gid_index = 200;
  CHECK_THAT(failure_of([&] { l.qp.to_rtr(wrong); }).to_string(), Contains("gid_index 200"));
  CHECK(l.qp.state() == queue_pair_state::init);
  if (l.port.mtu_active < IBV_MTU_4096) {
    wrong = l.rtr();
    wrong.path_mtu = IBV_MTU_4096;
    verbs_faults::fail_call(1, EINVAL);
    const auto text = failure_of([&] { l.qp.to_rtr(wrong); }).to_string();
    CHECK_THAT(text, Contains("path_mtu 4096 exceeds the port's active MTU"));
  }
  verbs_faults::fail_call(0, 0);
  l.qp.to_rtr(l.rtr());
}

TEST_CASE("a queue pair that the device moved to ERROR says so", "[verbs][device][N8]") {
  loopback l;
  l.qp.to_init(l.port.number);
  l.qp.to_rtr(l.rtr());
  ibv_qp_attr attributes{};  // Behind the library's back, which keeps the old state.
  attributes.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(l.qp.native_handle(), &attributes, IBV_QP_STATE) == 0);
  l.qp.native_handle()->state = IBV_QPS_RTR;
  CHECK_THAT(failure_of([&] { l.qp.to_rts(loopback::rts()); }).to_string(),
             Contains("moved it from RTR to ERROR"));
  CHECK(l.qp.state() == queue_pair_state::error);
}

TEST_CASE("capabilities are what the device gave, at least what was wanted",
          "[verbs][device][N9]") {
  loopback l;
  CHECK(l.qp.capabilities().send_wr_max >= 4);
  CHECK(l.qp.capabilities().recv_wr_max >= 4);
  CHECK(l.qp.capabilities().inline_max >= 16);
  CHECK(l.cq.capacity() >= 16);

  const std::uint32_t most = l.ctx.limits().qp_wr_max;
  const auto text = failure_of([&] {
                      queue_pair too_large{l.pd, l.cq, l.cq, {.send_wr_max = most + 1}};
                    }).to_string();
  CHECK_THAT(text, Contains(std::to_string(most + 1)) && Contains(std::to_string(most)));
  CHECK_THAT(failure_of([&] { completion_queue cq(l.ctx, 0); }).to_string(), Contains("depth 0"));
  CHECK_THAT(
      failure_of([&] { completion_queue cq(l.ctx, l.ctx.limits().cqe_max + 1); }).to_string(),
      Contains("depth " + std::to_string(l.ctx.limits().cqe_max + 1)));
  CHECK_THAT(failure_of([&] {
               completion_queue cq(l.ctx, 1, nullptr, l.ctx.comp_vector_count());
             }).to_string(),
             Contains("comp_vector"));
}

TEST_CASE("more inline bytes than the device gives are refused, both numbers named",
          "[verbs][device][N9]") {
  loopback l;
  const auto live = verbs_faults::live_objects();
  constexpr std::uint32_t wanted = 1u << 30;
  const cordma::failure f =
      failure_of([&] { queue_pair too_large{l.pd, l.cq, l.cq, {.inline_max = wanted}}; });
  CHECK(f.code == cordma::errc::limit_exceeded);
  const std::string text{f.detail.view()};
  CHECK_THAT(text, Contains("inline_max " + std::to_string(wanted) + " exceeds"));
  const auto most = std::uint32_t(std::stoul(text.substr(text.rfind(' '))));
  CHECK(most < wanted);
  CHECK_NOTHROW(queue_pair{l.pd, l.cq, l.cq, {.inline_max = most}});
  CHECK_THROWS(queue_pair{l.pd, l.cq, l.cq, {.inline_max = most + 1}});
  CHECK(verbs_faults::live_objects() == live);
}

TEST_CASE("what is posted completes as flushed once the queue pair is in ERROR",
          "[verbs][device][C2]") {
  loopback l;
  l.connect();
  REQUIRE(l.post_recv() == 0);
  l.qp.to_error();
  CHECK(l.reap(1).front().status == IBV_WC_WR_FLUSH_ERR);
}
