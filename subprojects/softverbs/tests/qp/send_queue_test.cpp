#include "control_fixture.hpp"

#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

using namespace softverbs;

namespace {

int post(ibv_qp* qp, ibv_wr_opcode opcode, unsigned flags = 0) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.send_flags = flags;
  return verb::post_send(qp, &wr, nullptr);
}

send_request& newest(ibv_qp* qp) { return inside(qp).request(inside(qp).sends.posted - 1); }

}  // namespace

TEST_CASE("a ring keeps a request, and its list or its bytes, in one WQE, for ever", "[qp]") {
  constexpr ibv_qp_cap few{.max_send_wr = 3,
                           .max_recv_wr = 0,
                           .max_send_sge = 2,
                           .max_recv_sge = 0,
                           .max_inline_data = 8};
  struct alignas(64) line {
    std::byte bytes[64];
  };
  std::vector<line> memory(send_wqes::bytes_for(few) / sizeof(line));
  const send_wqes wqes{few};
  CHECK(wqes.capacity() == 3);
  constexpr std::uint64_t first = 1000;
  const auto at = [&, ring = send_ring{.first = first}](std::uint64_t index) -> send_request& {
    return wqes.at(ring, index, memory.data() + memory.size());
  };
  for (std::uint64_t index = first; index < first + 3; ++index) {
    at(index) = {.wr_id = index, .data_at = sizeof(send_request)};
    if (index % 2 == 0)
      at(index).sges()[1].length = static_cast<std::uint32_t>(index);
    else
      std::memset(at(index).data(), static_cast<int>(index & 0x7f), 8);
  }
  for (std::uint64_t index = first; index < first + 3; ++index) {
    CHECK(at(index).wr_id == index);
    if (index % 2 == 0)
      CHECK(at(index).sges()[1].length == index);
    else
      CHECK(at(index).data()[7] == std::byte(index & 0x7f));
  }
  // Four WQEs: the last begins the memory.
  CHECK(static_cast<void*>(&at(first + 3)) == memory.data());
  CHECK(&at(first + 4) == &at(first));
  CHECK(send_wqes{{}}.capacity() == 0);
}

TEST_CASE("requests are posted only where they can be sent or flushed", "[qp]") {
  const device dev;
  ibv_qp* qp = dev.create(IBV_QPT_RC);
  CHECK(post(qp, IBV_WR_SEND) == EINVAL);
  for (const auto to : {IBV_QPS_INIT, IBV_QPS_RTR}) {
    REQUIRE(move_to(qp, to) == 0);
    CHECK(post(qp, IBV_WR_SEND) == EINVAL);
  }
  for (const auto to : {IBV_QPS_RTS, IBV_QPS_SQD}) REQUIRE(move_to(qp, to) == 0);
  CHECK(post(qp, IBV_WR_SEND) == 0);
  REQUIRE(move_to(qp, IBV_QPS_ERR) == 0);
  CHECK(post(qp, IBV_WR_SEND) == 0);
  CHECK(verb::destroy_qp(qp) == 0);
}

TEST_CASE("each type of queue pair has its operations", "[qp]") {
  const device dev;
  const auto refused = [&](ibv_qp_type type, ibv_wr_opcode opcode) {
    ibv_qp* qp = dev.create(type);
    drain_ready(qp);
    address_handle ah = dev.address();
    ibv_send_wr wr{};
    wr.opcode = opcode;
    if (type == IBV_QPT_UD) wr.wr.ud.ah = &ah.handle;
    const int error = verb::post_send(qp, &wr, nullptr);
    CHECK(verb::destroy_qp(qp) == 0);
    return error;
  };
  for (const auto opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM})
    for (const auto type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) CHECK(refused(type, opcode) == 0);
  for (const auto opcode :
       {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_LOCAL_INV, IBV_WR_SEND_WITH_INV}) {
    CHECK(refused(IBV_QPT_RC, opcode) == 0);
    CHECK(refused(IBV_QPT_UC, opcode) == 0);
    CHECK(refused(IBV_QPT_UD, opcode) == EINVAL);
  }
  for (const auto opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
                            IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE}) {
    CHECK(refused(IBV_QPT_RC, opcode) == 0);
    CHECK(refused(IBV_QPT_UC, opcode) == EINVAL);
    CHECK(refused(IBV_QPT_UD, opcode) == EINVAL);
  }
  for (const auto type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD})
    for (const int opcode : {10, 11, 12, 14})
      CHECK(refused(type, static_cast<ibv_wr_opcode>(opcode)) == EINVAL);
}

TEST_CASE("a list stops at its first bad request, and the ones before it stay", "[qp]") {
  const device dev;
  ibv_qp* qp = dev.create(IBV_QPT_RC);
  drain_ready(qp);
  ibv_sge list[list_max + 1]{};
  ibv_send_wr wrs[3]{};
  for (auto& wr : wrs) {
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = list;
    wr.num_sge = list_max;
  }
  wrs[0].next = &wrs[1];
  wrs[1].next = &wrs[2];
  wrs[1].num_sge = list_max + 1;
  ibv_send_wr* bad = nullptr;
  CHECK(verb::post_send(qp, wrs, &bad) == EINVAL);
  CHECK(bad == &wrs[1]);
  CHECK(inside(qp).sends.posted - inside(qp).sends.completed == 1);
  wrs[2].num_sge = -1;
  CHECK(verb::post_send(qp, &wrs[2], &bad) == EINVAL);
  wrs[2].opcode = IBV_WR_LOCAL_INV;
  for (const int num_sge : {-1, int{list_max} + 1}) {
    wrs[2].num_sge = num_sge;
    CHECK(verb::post_send(qp, &wrs[2], &bad) == EINVAL);
  }
  CHECK(post(qp, IBV_WR_SEND, IBV_SEND_IP_CSUM) == EINVAL);
  CHECK(post(qp, IBV_WR_RDMA_READ, IBV_SEND_INLINE) == EINVAL);
  CHECK(verb::destroy_qp(qp) == 0);
}

TEST_CASE("inline bytes are taken at the post, up to the limit", "[qp]") {
  const device dev;
  ibv_qp* qp = dev.create(IBV_QPT_RC);
  drain_ready(qp);
  char first[] = "abcdefgh", second[] = "ijklmnop";
  ibv_sge list[]{{reinterpret_cast<std::uint64_t>(first), 8, 0},
                 {reinterpret_cast<std::uint64_t>(second), 8, 0}};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_INLINE;
  wr.sg_list = list;
  wr.num_sge = 2;
  REQUIRE(verb::post_send(qp, &wr, nullptr) == 0);
  std::memset(first, 0, sizeof first);
  CHECK(newest(qp).inlined);
  CHECK(newest(qp).sge_count == 0);
  CHECK(newest(qp).length == inline_max);
  const auto* kept = reinterpret_cast<const char*>(newest(qp).data());
  CHECK(std::string_view{kept, inline_max} == "abcdefghijklmnop");
  list[1].length = 9;
  CHECK(verb::post_send(qp, &wr, nullptr) == EINVAL);
  CHECK(verb::destroy_qp(qp) == 0);
}

TEST_CASE("a request's length is the sum of its list, even where that is too long to send",
          "[qp]") {
  const device dev;
  ibv_qp* qp = dev.create(IBV_QPT_RC);
  drain_ready(qp);
  constexpr auto huge = std::numeric_limits<std::uint32_t>::max();
  ibv_sge list[]{{0x1000, 5, 7}, {0x2000, 6, 8}};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = list;
  wr.num_sge = 2;
  REQUIRE(verb::post_send(qp, &wr, nullptr) == 0);
  CHECK(newest(qp).length == 11);
  CHECK(newest(qp).sges()[1].lkey == 8);
  list[0].length = list[1].length = huge;
  REQUIRE(verb::post_send(qp, &wr, nullptr) == 0);
  CHECK(newest(qp).length == huge);
  CHECK(verb::destroy_qp(qp) == 0);
}

TEST_CASE("a full send queue has room again when a completion is polled", "[qp]") {
  const device dev;
  ibv_qp* qp = dev.create(IBV_QPT_RC);
  drain_ready(qp);
  for (std::uint32_t i = 0; i < depth; ++i) REQUIRE(post(qp, IBV_WR_SEND) == 0);
  CHECK(post(qp, IBV_WR_SEND) == ENOMEM);
  REQUIRE(move_to(qp, IBV_QPS_ERR) == 0);
  CHECK(post(qp, IBV_WR_SEND) == ENOMEM);
  ibv_wc wc;
  REQUIRE(verb::poll_cq(dev.cq, 1, &wc) == 1);
  CHECK(post(qp, IBV_WR_SEND) == 0);
  CHECK(post(qp, IBV_WR_SEND) == ENOMEM);
  CHECK(verb::destroy_qp(qp) == 0);
}

TEST_CASE("a datagram keeps its address after the handle is gone", "[qp]") {
  const device dev;
  ibv_qp* qp = dev.create(IBV_QPT_UD);
  drain_ready(qp);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  CHECK(verb::post_send(qp, &wr, nullptr) == EINVAL);  // No address handle.
  {
    address_handle ah = dev.address();
    wr.wr.ud = {&ah.handle, 1u << 24, 0};
    CHECK(verb::post_send(qp, &wr, nullptr) == EINVAL);
    wr.wr.ud = {&ah.handle, qp->qp_num, 77};
    REQUIRE(verb::post_send(qp, &wr, nullptr) == 0);
  }
  const auto& datagram = newest(qp).datagram();
  CHECK(datagram.qpn == qp->qp_num);
  CHECK(datagram.qkey == 77);
  const auto gid = gid_at(0);
  CHECK(std::memcmp(&datagram.gid, &gid, sizeof gid) == 0);
  CHECK(std::memcmp(&datagram.source_gid, &gid, sizeof gid) == 0);
  CHECK(inside(qp).local_node->is_local(datagram.to()));
  CHECK(verb::destroy_qp(qp) == 0);
}

TEST_CASE("a window is bound by the call that is for its type", "[qp]") {
  const device dev;
  ibv_qp* qp = dev.create(IBV_QPT_RC);
  drain_ready(qp);
  ibv_mw window{dev.ctx, dev.pd, 0x12ff, 0, IBV_MW_TYPE_1};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw.mw = &window;
  CHECK(verb::post_send(qp, &wr, nullptr) == EINVAL);
  ibv_mw_bind bind{};
  bind.wr_id = 5;
  REQUIRE(verb::bind_mw(qp, &window, &bind) == 0);
  CHECK(window.rkey == 0x1200);
  CHECK(newest(qp).bind().new_rkey == 0x1200);
  CHECK(newest(qp).bind().old_rkey == 0x12ff);
  CHECK(newest(qp).wr_id == 5);
  bind.bind_info.length = 1;  // No region is named.
  CHECK(verb::bind_mw(qp, &window, &bind) == EINVAL);
  bind.bind_info.length = 0;

  window.type = IBV_MW_TYPE_2;
  CHECK(verb::bind_mw(qp, &window, &bind) == EINVAL);
  wr.bind_mw.rkey = 0x1201;
  REQUIRE(verb::post_send(qp, &wr, nullptr) == 0);
  CHECK(newest(qp).bind().new_rkey == 0x1201);
  CHECK(window.rkey == 0x1200);
  REQUIRE(move_to(qp, IBV_QPS_RESET) == 0);
  CHECK(verb::destroy_qp(qp) == 0);
}
