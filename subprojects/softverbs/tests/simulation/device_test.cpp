#include "simulation/world.hpp"

#include <softverbs/softverbs.h>

#include <fcntl.h>
#include <poll.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

// The device of a simulated host: its state, and what befalls it.

using namespace softverbs;
using namespace softverbs::test;

namespace {

bool has(softverbs_host* host, const softverbs_counts& open) {
  const softverbs_counts now = softverbs_count_objects(host);
  return std::memcmp(&now, &open, sizeof now) == 0;
}

/// A device of a host that was opened as programs do.
class opened {
 public:
  explicit opened(softverbs_host* host) : here_{host} { REQUIRE(ctx != nullptr); }
  opened(const opened&) = delete;
  ~opened() { CHECK(ibv_close_device(ctx) == 0); }

 private:
  on_host here_;

 public:
  ibv_context* const ctx = ibv_open_device(&soft_device);
};

ibv_port_attr port_of(ibv_context* ctx) {
  ibv_port_attr attr{};
  REQUIRE(ibv_query_port(ctx, 1, &attr) == 0);
  return attr;
}

int qps_max(ibv_context* ctx) {
  ibv_device_attr attr{};
  REQUIRE(ibv_query_device(ctx, &attr) == 0);
  return attr.max_qp;
}

ibv_event_type next_event(ibv_context* ctx) {
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(ctx, &event) == 0);
  ibv_ack_async_event(&event);
  return event.event_type;
}

}  // namespace

TEST_CASE("a simulation knows when the descriptor of a channel is readable, and is told",
          "[simulation]") {
  far_pair both{{.channel = true}};
  softverbs_host* const host = both.host(2);
  const int fd = both.b().channel->fd;
  CHECK(softverbs_is_readable(host, fd) == 0);
  CHECK(softverbs_is_readable(both.host(1), fd) == -1);
  {
    const on_host here{host};
    REQUIRE(both.b().receive(9, {both.b().piece(0, 64)}) == 0);
    REQUIRE(verb::req_notify_cq(both.b().cq, 0) == 0);
  }
  both.send(request(IBV_WR_SEND), {both.a().piece(0, 8)});
  both.world.work();
  CHECK(softverbs_is_readable(host, fd) == 0);
  both.world.run();
  CHECK(softverbs_is_readable(host, fd) == 1);
  CHECK(both.world.told_readable == std::vector{std::pair{host, fd}});
  const on_host here{host};
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  REQUIRE(verb::get_cq_event(both.b().channel, &cq, &cq_context) == 0);
  CHECK(softverbs_is_readable(host, fd) == 0);
  ibv_ack_cq_events(cq, 1);
}

TEST_CASE("an event that is dropped with its queue leaves the descriptor unreadable",
          "[simulation]") {
  plain_world world;
  world.keeps_tokens = GENERATE(false, true);
  softverbs_host* const host = world.add(1);
  const opened device{host};
  ibv_comp_channel* const channel = ibv_create_comp_channel(device.ctx);
  ibv_cq* const cq = ibv_create_cq(device.ctx, 4, nullptr, channel, 0);
  REQUIRE(cq != nullptr);
  REQUIRE(ibv_req_notify_cq(cq, 0) == 0);
  REQUIRE(push(*reinterpret_cast<completion_queue*>(cq), {}, false));
  CHECK(softverbs_is_readable(host, channel->fd) == 1);
  CHECK(ibv_destroy_cq(cq) == 0);
  CHECK(softverbs_is_readable(host, channel->fd) == 0);
  const int fd = channel->fd;
  CHECK(ibv_destroy_comp_channel(channel) == 0);
  CHECK(softverbs_is_readable(host, fd) == -1);
}

TEST_CASE("of an event of a host that keeps tokens, the kernel knows nothing", "[simulation]") {
  const bool keeps_tokens = GENERATE(false, true);
  plain_world world;
  world.keeps_tokens = keeps_tokens;
  softverbs_host* const host = world.add(1);
  const opened device{host};
  const int fd = device.ctx->async_fd;
  REQUIRE(::fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
  const auto is_readable_now = [&] {
    pollfd one{fd, POLLIN, 0};
    return ::poll(&one, 1, 0) == 1;
  };
  REQUIRE(softverbs_set_port(host, 0) == 0);
  REQUIRE(softverbs_set_port(host, 1) == 0);
  CHECK(softverbs_is_readable(host, fd) == 1);
  CHECK(is_readable_now() == !keeps_tokens);
  CHECK(next_event(device.ctx) == IBV_EVENT_PORT_ERR);
  CHECK(softverbs_is_readable(host, fd) == 1);
  CHECK(next_event(device.ctx) == IBV_EVENT_PORT_ACTIVE);
  CHECK(softverbs_is_readable(host, fd) == 0);
  ibv_async_event event{};
  CHECK(ibv_get_async_event(device.ctx, &event) == -1);
  CHECK(errno == EAGAIN);
}

TEST_CASE("a simulation counts the objects of each host", "[simulation]") {
  plain_world world;
  softverbs_host* const host = world.add(1);
  softverbs_host* const other = world.add(2);
  CHECK(has(host, {}));
  {
    const on_host here{host};
    side one{{.srq = true, .channel = true, .peer = plain_world::gid_of(2)}};
    one.add_window(IBV_MW_TYPE_1);
    ibv_ah_attr path = side::path();
    ibv_ah* const ah = verb::create_ah(one.pd, &path);
    REQUIRE(ah != nullptr);
    one.add_region(one.memory.data(), 64, IBV_ACCESS_LOCAL_WRITE);
    CHECK(has(host, {.contexts = 1,
                     .pds = 1,
                     .mrs = 2,
                     .mws = 1,
                     .cqs = 1,
                     .channels = 1,
                     .qps = 1,
                     .srqs = 1,
                     .ahs = 1}));
    CHECK(verb::destroy_ah(ah) == 0);
  }
  CHECK(has(host, {}));
  CHECK(has(other, {}));
}

TEST_CASE("a simulation finds queue pairs by number, and is told when queues are destroyed",
          "[simulation]") {
  plain_world world;
  softverbs_host* const host = world.add(1);
  softverbs_host* const other = world.add(2);
  const ibv_qp* qp = nullptr;
  const ibv_srq* srq = nullptr;
  std::uint32_t number = 0;
  {
    const on_host here{host};
    const side one{{.srq = true, .peer = plain_world::gid_of(2)}};
    qp = one.qp;
    srq = one.srq;
    number = qp->qp_num;
    CHECK(softverbs_find_qp(host, number) == qp);
    CHECK(softverbs_find_qp(other, number) == nullptr);
    CHECK(world.told_destroyed.empty());
  }
  CHECK(softverbs_find_qp(host, number) == nullptr);
  CHECK(world.told_destroyed ==
        std::vector<std::pair<softverbs_host*, const void*>>{{host, qp}, {host, srq}});
}

TEST_CASE("limits that were pretended are those of the host that was entered", "[simulation]") {
  plain_world world;
  softverbs_host* const host = world.add(1);
  softverbs_host* const other = world.add(2);
  const int whole = limits().max_qp;
  {
    const opened device{host};
    REQUIRE(softverbs_pretend_limit(SOFTVERBS_MAX_QP, 3) == 0);
    CHECK(qps_max(device.ctx) == 3);
    const opened far{other};
    CHECK(qps_max(far.ctx) == whole);
  }
  CHECK(limits().max_qp == whole);
  const opened again{host};
  CHECK(qps_max(again.ctx) == 3);
  REQUIRE(softverbs_reset() == 0);
  CHECK(qps_max(again.ctx) == whole);
}

TEST_CASE("a host has as many objects as its own limit allows, whatever other hosts have",
          "[simulation]") {
  plain_world world;
  softverbs_host* const host = world.add(1);
  softverbs_host* const other = world.add(2);
  const opened far{other};
  ibv_pd* const far_pd = ibv_alloc_pd(far.ctx);
  const opened device{host};
  REQUIRE(softverbs_pretend_limit(SOFTVERBS_MAX_PD, 1) == 0);
  ibv_pd* const pd = ibv_alloc_pd(device.ctx);
  REQUIRE(pd != nullptr);
  CHECK(ibv_alloc_pd(device.ctx) == nullptr);
  CHECK(errno == ENOMEM);
  {
    const on_host there{other};
    ibv_pd* const second = ibv_alloc_pd(far.ctx);
    REQUIRE(second != nullptr);
    CHECK(ibv_dealloc_pd(second) == 0);
  }
  CHECK(ibv_dealloc_pd(pd) == 0);
  CHECK(ibv_dealloc_pd(far_pd) == 0);
}

TEST_CASE("limits that were pretended end with their host, even while it is entered",
          "[simulation]") {
  const int whole = limits().max_qp;
  {
    plain_world world;
    softverbs_enter_host(world.add(1));
    REQUIRE(softverbs_pretend_limit(SOFTVERBS_MAX_QP, 3) == 0);
    CHECK(limits().max_qp == 3);
  }
  CHECK(limits().max_qp == whole);
}

TEST_CASE("a host may get other addresses, of which its contexts hear", "[simulation]") {
  plain_world world;
  softverbs_host* const host = world.add(1);
  const opened device{host};
  const std::array gids{plain_world::gid_of(7), plain_world::gid_of(8)};
  REQUIRE(softverbs_change_gids(host, gids.data(), 2) == 0);
  CHECK(softverbs_is_readable(host, device.ctx->async_fd) == 1);
  CHECK(next_event(device.ctx) == IBV_EVENT_GID_CHANGE);
  CHECK(softverbs_is_readable(host, device.ctx->async_fd) == 0);
  ibv_gid gid;
  REQUIRE(ibv_query_gid(device.ctx, 1, 1, &gid) == 0);
  CHECK(std::memcmp(&gid, &gids[1], sizeof gid) == 0);
  CHECK(softverbs_change_gids(host, gids.data(), 0) == EINVAL);
  CHECK(softverbs_change_gids(host, gids.data(), gids_max + 1) == EINVAL);
}

TEST_CASE("while a host's port is down, nothing that it sends is under way", "[simulation]") {
  far_pair both;
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 8)});
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  both.world.writes.clear();
  REQUIRE(softverbs_set_port(both.host(1), 0) == 0);
  for (const std::size_t at : {0u, 8u})
    both.send(one_sided(IBV_WR_RDMA_WRITE, both.b(), at, at), {both.a().piece(0, 8)});
  both.world.run();
  CHECK(both.world.in_flight.empty());
  CHECK(both.world.writes.empty());
  REQUIRE(softverbs_set_port(both.host(1), 1) == 0);
  CHECK(both.world.in_flight.size() == 2);
  CHECK(both.completion(1).wr_id == 0);
  CHECK(both.completion(1).wr_id == 8);
}

TEST_CASE("while a host's port is down, it takes nothing, and its peers' retries run out",
          "[simulation]") {
  far_pair both{{.timeout = 14, .retry_cnt = 7}};
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 8)});
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  both.world.writes.clear();
  REQUIRE(softverbs_set_port(both.host(2), 0) == 0);
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 8)});
  both.world.run();
  CHECK(both.world.in_flight.empty());
  CHECK(both.world.writes.empty());
  SECTION("a port that comes back in time takes what has arrived") {
    REQUIRE(softverbs_set_port(both.host(2), 1) == 0);
    CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  }
  SECTION("a port that stays down lets the requests end") {
    CHECK(both.completion(1).status == IBV_WC_RETRY_EXC_ERR);
  }
}

TEST_CASE("a port that is down says so, and its contexts hear of each change", "[simulation]") {
  plain_world world;
  softverbs_host* const host = world.add(1);
  const opened device{host};
  CHECK(port_of(device.ctx).state == IBV_PORT_ACTIVE);
  REQUIRE(softverbs_set_port(host, 0) == 0);
  REQUIRE(softverbs_set_port(host, 0) == 0);
  CHECK(port_of(device.ctx).state == IBV_PORT_DOWN);
  CHECK(next_event(device.ctx) == IBV_EVENT_PORT_ERR);
  CHECK(softverbs_is_readable(host, device.ctx->async_fd) == 0);
  REQUIRE(softverbs_set_port(host, 1) == 0);
  CHECK(port_of(device.ctx).state == IBV_PORT_ACTIVE);
  CHECK(next_event(device.ctx) == IBV_EVENT_PORT_ACTIVE);
}

TEST_CASE("no link begins while the port of one of its hosts is down", "[simulation]") {
  const unsigned down = GENERATE(1u, 2u);
  far_pair both{{.type = IBV_QPT_UD}};
  const on_host here{both.host(1)};
  ibv_ah_attr path = side::path();
  path.grh.dgid = plain_world::gid_of(2);
  ibv_send_wr wr = request(IBV_WR_SEND);
  wr.wr.ud = {.ah = verb::create_ah(both.a().pd, &path),
              .remote_qpn = both.b().qp->qp_num,
              .remote_qkey = 0x1234};
  REQUIRE(softverbs_set_port(both.host(down), 0) == 0);
  both.send(wr, {both.a().piece(0, 8)});
  REQUIRE(softverbs_set_port(both.host(down), 1) == 0);
  both.world.run();
  CHECK(both.world.trace.empty());
  both.send(wr, {both.a().piece(0, 8)});
  both.world.run();
  CHECK_FALSE(both.world.trace.empty());
  CHECK(verb::destroy_ah(wr.wr.ud.ah) == 0);
}

TEST_CASE("a device that fails flushes what its host posts, and its peer gets no answer",
          "[simulation]") {
  far_pair both{{.timeout = 14, .retry_cnt = 7}};
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 8)});
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  both.world.writes.clear();
  REQUIRE(softverbs_fail_device(both.host(2)) == 0);
  SECTION("a request of the host") {
    const on_host here{both.host(2)};
    CHECK(next_event(both.b().qp->context) == IBV_EVENT_DEVICE_FATAL);
    ibv_send_wr wr = one_sided(IBV_WR_RDMA_WRITE, both.a());
    both.b().send(wr, {both.b().piece(0, 8)});
    CHECK(both.completion(2).status == IBV_WC_WR_FLUSH_ERR);
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RESET;
    REQUIRE(ibv_modify_qp(both.b().qp, &to, IBV_QP_STATE) == 0);
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    CHECK(ibv_modify_qp(both.b().qp, &to,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
          EIO);
  }
  SECTION("a request of the peer") {
    both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 8)});
    CHECK(both.completion(1).status == IBV_WC_RETRY_EXC_ERR);
  }
  CHECK(both.world.writes.empty());
}

TEST_CASE("a simulation finds the contexts of a host, and can have its device fail",
          "[simulation]") {
  plain_world world;
  softverbs_host* const host = world.add(1);
  std::array<ibv_context*, 4> found{};
  CHECK(softverbs_host_contexts(host, found.data(), 4) == 0);
  const opened first{host};
  {
    const opened second{host};
    CHECK(softverbs_host_contexts(host, found.data(), 4) == 2);
    CHECK(found[0] == first.ctx);
    CHECK(found[1] == second.ctx);
    CHECK(softverbs_host_contexts(host, found.data(), 1) == 1);
  }
  REQUIRE(softverbs_host_contexts(host, found.data(), 4) == 1);
  REQUIRE(softverbs_fail_device(host) == 0);
  CHECK(next_event(first.ctx) == IBV_EVENT_DEVICE_FATAL);
}
