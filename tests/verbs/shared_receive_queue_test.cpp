#include "verbs/shared_receive_queue.hpp"

#include "support/verbs_faults.hpp"
#include "verbs/loopback.hpp"

#include <catch2/catch.hpp>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

using namespace cordma::verbs;
using namespace cordma::verbs::test;
using Catch::Matchers::Contains;

namespace {

int post(shared_receive_queue& srq, loopback& l, std::uint64_t wr_id) {
  ibv_sge sge{
      .addr = reinterpret_cast<std::uintptr_t>(l.mr.address()), .length = 64, .lkey = l.mr.lkey()};
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return srq.post(&wr, &bad);
}

/// Devices that have none.
device_limits without(device_limits limits) {
  limits.srq_max = 0;
  return limits;
}

}  // namespace

TEST_CASE("a message takes a receive of the shared queue, and its completion names both",
          "[verbs][device]") {
  loopback l;
  shared_receive_queue srq{l.pd, {.wr_max = 4}};
  CHECK(srq.capabilities().wr_max >= 4);
  CHECK(srq.capabilities().sge_max >= 1);
  l.qp = queue_pair{l.pd, l.cq, l.cq, {.send_wr_max = 4, .inline_max = 16}, nullptr, &srq};
  CHECK(l.qp.capabilities().recv_wr_max == 0);
  CHECK(l.qp.capabilities().send_wr_max >= 4);
  shared_receive_queue moved = std::move(srq);
  REQUIRE(post(moved, l, 77) == 0);
  l.connect();
  std::memset(l.bytes.data() + 4096, 0x5a, 64);
  REQUIRE(l.post_send() == 0);
  unsigned received = 0;
  for (const ibv_wc& wc : l.reap(2)) {
    CHECK(wc.status == IBV_WC_SUCCESS);
    if (wc.wr_id != 77) continue;
    ++received;
    CHECK(wc.qp_num == l.qp.num());
  }
  CHECK(received == 1);
  CHECK(std::memcmp(l.bytes.data(), l.bytes.data() + 4096, 64) == 0);
  l.qp.destroy();
  moved.destroy();
  moved.destroy();
}

TEST_CASE("what a device does not have of shared queues is refused, with the numbers",
          "[verbs][device]") {
  loopback l;
  const device_limits limits = l.ctx.limits();
  const auto live = verbs_faults::live_objects();
  const auto refusal_of = [&](const shared_receive_queue_capabilities& wanted) {
    return failure_of([&] { shared_receive_queue{l.pd, wanted}; });
  };
  for (const std::uint32_t wr_max : {0u, limits.srq_wr_max + 1}) {
    const cordma::failure f = refusal_of({.wr_max = wr_max});
    CHECK(f.code == cordma::errc::limit_exceeded);
    CHECK_THAT(f.to_string(), Contains("wr_max " + std::to_string(wr_max)));
  }
  const cordma::failure slices = refusal_of({.sge_max = limits.srq_sge_max + 1});
  CHECK(slices.code == cordma::errc::limit_exceeded);
  CHECK_THAT(slices.to_string(), Contains("sge_max " + std::to_string(limits.srq_sge_max + 1)));
  const cordma::failure none = failure_of([&] { check({.wr_max = 1}, without(limits)); });
  CHECK(none.code == cordma::errc::not_supported);
  CHECK_THAT(none.to_string(), Contains("no shared receive queues"));
  CHECK(verbs_faults::live_objects() == live);
}

TEST_CASE("a device that makes no shared queue says why", "[verbs][device]") {
  loopback l;
  const auto refusal_by = [&](int error) {
    verbs_faults::fail_call(1, error);
    return failure_of([&] { shared_receive_queue{l.pd, {.wr_max = 4}}; });
  };
  CHECK(refusal_by(EOPNOTSUPP).code == cordma::errc::not_supported);
  const cordma::failure full = refusal_by(ENOMEM);
  CHECK(full.code.value() == ENOMEM);
  CHECK_THAT(full.to_string(), Contains("4 receives of 1 slices"));
  CHECK_THAT(refusal_by(EINVAL).to_string(), Contains("4 receives of 1 slices"));
  verbs_faults::fail_call(0, 0);
}
