// Memory that is taken back while the peer reads it, frame by frame.
#include "raw_side.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::raw_side;
using test::raw_world;

namespace {

constexpr std::size_t read_bytes = 1024 * 1024;  // 32 frames.
constexpr std::byte lent_byte{0x11}, later_byte{0xee};

/// Memory of a program beside its side's own buffer.
struct registered_bytes {
  registered_bytes(raw_side& side, std::byte fill)
      : bytes(read_bytes, fill),
        mr{::ibv_reg_mr(side.pd, bytes.data(), bytes.size(),
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND)} {
    if (mr == nullptr) throw std::runtime_error{"ibv_reg_mr"};
  }
  registered_bytes(const registered_bytes&) = delete;
  ~registered_bytes() { ::ibv_dereg_mr(mr); }

  std::vector<std::byte> bytes;
  ibv_mr* mr;
};

/// A window on an owner's memory, which has a key while it is bound.
struct lent_window {
  ibv_mw* mw = nullptr;
  std::uint64_t address = 0;

  task<> bind(raw_side& owner, registered_bytes& memory) {
    mw = ::ibv_alloc_mw(owner.pd, IBV_MW_TYPE_2);
    ibv_send_wr wr = test::request(IBV_WR_BIND_MW);
    wr.bind_mw = {.mw = mw,
                  .rkey = ::ibv_inc_rkey(mw->rkey),
                  .bind_info = {.mr = memory.mr,
                                .addr = reinterpret_cast<std::uint64_t>(memory.bytes.data()),
                                .length = memory.bytes.size(),
                                .mw_access_flags = IBV_ACCESS_REMOTE_READ}};
    owner.send(wr, {});
    static_cast<void>(co_await owner.completion());
    mw->rkey = wr.bind_mw.rkey;
    address = wr.bind_mw.bind_info.addr;
  }
  task<> revoke(raw_side& owner) const {
    ibv_send_wr wr = test::request(IBV_WR_LOCAL_INV);
    wr.invalidate_rkey = mw->rkey;
    owner.send(wr, {});
    static_cast<void>(co_await owner.completion());
  }
};

struct read_outcome {
  ibv_wc_status status = IBV_WC_GENERAL_ERR;
  std::size_t lent_count = 0;   ///< bytes from before the revocation
  std::size_t later_count = 0;  ///< bytes that the owner wrote after it
};

task<ibv_wc_status> status_of_next(raw_side& side) {
  ibv_wc wc{};
  while (::ibv_poll_cq(side.cq, 1, &wc) == 0) co_await sleep_for(10us);
  co_return wc.status;
}

/// Plays one seed: host a reads all of a window, which host b revokes after `delay`.
read_outcome read_beside_revocation(std::uint64_t seed, time_span delay) {
  raw_world both{seed};
  lent_window window;
  bool has_begun = false, has_ended = false;
  read_outcome outcome;
  const std::string found = both.play(
      [&](raw_side& own, raw_side&) -> task<> {
        registered_bytes target{own, std::byte{0}};
        while (window.address == 0) co_await sleep_for(10us);
        ibv_send_wr wr = test::request(IBV_WR_RDMA_READ);
        wr.wr.rdma = {.remote_addr = window.address, .rkey = window.mw->rkey};
        own.send(wr, {{.addr = reinterpret_cast<std::uint64_t>(target.bytes.data()),
                       .length = read_bytes,
                       .lkey = target.mr->lkey}});
        has_begun = true;
        outcome.status = co_await status_of_next(own);
        has_ended = true;
        outcome.lent_count = std::size_t(std::ranges::count(target.bytes, lent_byte));
        outcome.later_count = std::size_t(std::ranges::count(target.bytes, later_byte));
      },
      [&](raw_side& own, raw_side&) -> task<> {
        registered_bytes source{own, lent_byte};
        co_await window.bind(own, source);
        while (!has_begun) co_await sleep_for(1us);
        co_await sleep_for(delay);
        co_await window.revoke(own);
        std::ranges::fill(source.bytes, later_byte);
        while (!has_ended) co_await sleep_for(10us);
        ::ibv_dealloc_mw(window.mw);
      });
  INFO("seed " << seed);
  CHECK(found == "");
  return outcome;
}

}  // namespace

TEST_CASE("a window that is revoked in the middle of a READ gives no byte of what comes later",
          "[sim]") {
  unsigned read_whole = 0, refused = 0, torn = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const read_outcome outcome =
        read_beside_revocation(seed, std::chrono::microseconds{seed * 37 % 400});
    INFO("seed " << seed << ": " << ::ibv_wc_status_str(outcome.status) << ", "
                 << outcome.lent_count << " bytes from before, " << outcome.later_count
                 << " from after");
    REQUIRE(outcome.later_count == 0);
    if (outcome.status == IBV_WC_SUCCESS) {
      ++read_whole;
      REQUIRE(outcome.lent_count == read_bytes);
    } else {
      REQUIRE(outcome.status == IBV_WC_REM_ACCESS_ERR);
      REQUIRE(outcome.lent_count < read_bytes);
      ++(outcome.lent_count == 0 ? refused : torn);
    }
  }
  CHECK(read_whole > 0);
  CHECK(refused > 0);
  CHECK(torn > 0);
}
