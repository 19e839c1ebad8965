#include "simulation/world.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

// Verbs that a program calls, as a simulation hears of them.

using namespace softverbs;
using namespace softverbs::test;

namespace {

/// The names of the verbs that one host calls, while it lives.
class heard {
 public:
  heard(plain_world& world, softverbs_host* of) : world_{world} {
    world.on_call = [this, of](softverbs_host* host, std::string_view verb, ibv_context* ctx) {
      if (host != of) return 0;
      calls.emplace_back(verb, ctx);
      return refused == verb ? EPERM : 0;
    };
  }
  heard(const heard&) = delete;
  ~heard() { world_.on_call = nullptr; }

  std::vector<std::pair<std::string, ibv_context*>> calls;
  std::string refused;

 private:
  plain_world& world_;
};

}  // namespace

TEST_CASE("a simulation hears of each verb before it does anything", "[simulation]") {
  plain_world world;
  softverbs_host* const host = world.add(1);
  world.add(2);
  const on_host here{host};
  const heard by{world, host};
  ibv_context* const ctx = ibv_open_device(&soft_device);
  REQUIRE(ctx != nullptr);
  ibv_pd* const pd = ibv_alloc_pd(ctx);
  ibv_comp_channel* const channel = ibv_create_comp_channel(ctx);
  ibv_cq* const cq = ibv_create_cq(ctx, 4, nullptr, channel, 0);
  ibv_wc wc;
  CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
  CHECK(ibv_req_notify_cq(cq, 0) == 0);
  CHECK(ibv_destroy_cq(cq) == 0);
  CHECK(ibv_destroy_comp_channel(channel) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0);
  CHECK(ibv_close_device(ctx) == 0);
  const std::vector<std::pair<std::string, ibv_context*>> expected{
      {"ibv_open_device", nullptr},
      {"ibv_alloc_pd", ctx},
      {"ibv_create_comp_channel", ctx},
      {"ibv_create_cq", ctx},
      {"ibv_poll_cq", ctx},
      {"ibv_req_notify_cq", ctx},
      {"ibv_destroy_cq", ctx},
      {"ibv_destroy_comp_channel", ctx},
      {"ibv_dealloc_pd", ctx},
      {"ibv_close_device", ctx}};
  CHECK(by.calls == expected);
}

TEST_CASE("a simulation can have each verb fail, except those that end an object", "[simulation]") {
  plain_world world;
  softverbs_host* const host = world.add(1);
  const on_host here{host};
  heard by{world, host};
  by.refused = "ibv_open_device";
  CHECK(ibv_open_device(&soft_device) == nullptr);
  CHECK(errno == EPERM);
  by.refused = "ibv_alloc_pd";
  ibv_context* const ctx = ibv_open_device(&soft_device);
  REQUIRE(ctx != nullptr);
  CHECK(ibv_alloc_pd(ctx) == nullptr);
  CHECK(errno == EPERM);
  by.refused.clear();
  ibv_pd* const pd = ibv_alloc_pd(ctx);
  REQUIRE(pd != nullptr);
  by.refused = "ibv_dealloc_pd";
  CHECK(ibv_dealloc_pd(pd) == 0);
  by.refused = "ibv_close_device";
  CHECK(ibv_close_device(ctx) == 0);
}

TEST_CASE("while a verb begins, a simulation does steps and lets frames arrive, also of its host",
          "[simulation]") {
  far_pair both;
  softverbs_host* const host = both.host(1);
  both.a().fill(0, 64, 3);
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 64)});
  const on_host here{host};
  bool is_within = false;
  both.world.on_call = [&](softverbs_host* of, std::string_view, ibv_context*) {
    CHECK(of == host);
    CHECK_FALSE(std::exchange(is_within, true));
    both.world.run();
    is_within = false;
    return 0;
  };
  ibv_context* const ctx = ibv_open_device(&soft_device);
  REQUIRE(ctx != nullptr);
  CHECK(ibv_close_device(ctx) == 0);
  both.world.on_call = nullptr;
  ibv_wc wc{};
  CHECK(verb::poll_cq(both.a().cq, 1, &wc) == 1);
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(both.b().memory[1] == both.a().memory[1]);
}

TEST_CASE("a queue pair hears of its completion in the poll during whose begin it came",
          "[simulation]") {
  far_pair both;
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 64)});
  const on_host here{both.host(1)};
  ibv_context* const ctx = ibv_open_device(&soft_device);
  REQUIRE(ctx != nullptr);
  const auto poll = ctx->ops.poll_cq;
  CHECK(ibv_close_device(ctx) == 0);
  ibv_wc wc{};
  CHECK(poll(both.a().cq, 1, &wc) == 0);
  both.world.on_call = [&](softverbs_host*, std::string_view verb, ibv_context*) {
    CHECK(verb == "ibv_poll_cq");
    both.world.run();
    return 0;
  };
  CHECK(poll(both.a().cq, 1, &wc) == 1);
  both.world.on_call = [](softverbs_host*, std::string_view, ibv_context*) { return EPERM; };
  CHECK(poll(both.a().cq, 1, &wc) == -1);
  both.world.on_call = nullptr;
}
