#include "faulty_device.hpp"
#include "raw_side.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <memory>
#include <string>

using namespace cordma;
using namespace std::chrono_literals;
using Catch::Contains;
using test::device_fault;
using test::faulty_device;
using test::raw_side;
using test::raw_world;

TEST_CASE("binds and ATOMIC WRITEs, which have calls of their own, are seen", "[sim]") {
  const auto found_with = [](std::uint64_t twice) {
    const device_fault wrong{[=](ibv_wc& wc) {
      if (wc.wr_id == twice) faulty_device::here().again = wc;
    }};
    raw_world both;
    bool is_made = false, is_connected = false;
    return both.play(
        [&](raw_side& own, raw_side& other) -> task<> {
          ::ibv_destroy_qp(own.qp);
          own.make_qp(nullptr, IBV_QP_EX_WITH_ATOMIC_WRITE);
          is_made = true;
          while (!is_connected) co_await sleep_for(1ms);
          own.connect(other.gid, other.qp->qp_num);
          // Region and window go also if the program is destroyed in the middle.
          const std::unique_ptr<ibv_mr, decltype(&::ibv_dereg_mr)> region{
              ::ibv_reg_mr(own.pd, own.memory.data(), own.memory.size(),
                           raw_side::access | IBV_ACCESS_MW_BIND),
              &::ibv_dereg_mr};
          const std::unique_ptr<ibv_mw, decltype(&::ibv_dealloc_mw)> window{
              ::ibv_alloc_mw(own.pd, IBV_MW_TYPE_1), &::ibv_dealloc_mw};
          ibv_mw_bind bind{.wr_id = 4,
                           .send_flags = IBV_SEND_SIGNALED,
                           .bind_info = {.mr = region.get(),
                                         .addr = own.address(0),
                                         .length = 64,
                                         .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
          CHECK(::ibv_bind_mw(own.qp, window.get(), &bind) == 0);
          static_cast<void>(co_await own.completion());
          ibv_qp_ex* const extended = ::ibv_qp_to_qp_ex(own.qp);
          const std::uint64_t word = 17;
          for (const bool is_posted : {false, true}) {
            ::ibv_wr_start(extended);
            extended->wr_id = 5;
            extended->wr_flags = IBV_SEND_SIGNALED;
            ::ibv_wr_atomic_write(extended, other.mr->rkey, other.address(8), &word);
            if (is_posted)
              CHECK(::ibv_wr_complete(extended) == 0);
            else
              ::ibv_wr_abort(extended);
          }
          static_cast<void>(co_await own.completion());
          own.send(test::request(IBV_WR_SEND), {own.piece(0, 8)});
          static_cast<void>(co_await own.completion());
        },
        [&](raw_side& own, raw_side& other) -> task<> {
          ::ibv_destroy_qp(own.qp);
          own.make_qp();
          while (!is_made) co_await sleep_for(1ms);
          own.connect(other.gid, other.qp->qp_num);
          own.receive(1, {own.piece(64, 64)});
          is_connected = true;
          static_cast<void>(co_await own.completion());
        },
        &faulty_device::make);
  };
  CHECK(found_with(0) == "");
  for (const std::uint64_t twice : {4u, 5u})
    CHECK_THAT(found_with(twice), Contains("a send ends that nobody posted, or it ends twice"));
}
