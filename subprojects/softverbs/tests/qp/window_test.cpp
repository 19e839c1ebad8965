#include "pair.hpp"

using namespace softverbs;
using namespace softverbs::test;

namespace {

constexpr unsigned read_write = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

ibv_mw_bind_info on(const side& owner, std::size_t at, std::size_t bytes,
                    unsigned access = read_write) {
  return {.mr = owner.mr, .addr = owner.address(at), .length = bytes, .mw_access_flags = access};
}

ibv_send_wr bind(ibv_mw* window, const ibv_mw_bind_info& info, std::uint32_t rkey) {
  ibv_send_wr wr = request(IBV_WR_BIND_MW);
  wr.bind_mw.mw = window;
  wr.bind_mw.rkey = rkey;
  wr.bind_mw.bind_info = info;
  return wr;
}

ibv_send_wr invalidate(ibv_wr_opcode opcode, std::uint32_t rkey) {
  ibv_send_wr wr = request(opcode);
  wr.invalidate_rkey = rkey;
  return wr;
}

ibv_wc_status write(pair& ends, std::uint32_t rkey, std::uint64_t address, std::size_t bytes) {
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE);
  wr.wr.rdma.rkey = rkey;
  wr.wr.rdma.remote_addr = address;
  REQUIRE(ends.a.send(wr, {ends.a.piece(0, bytes)}) == 0);
  return ends.a.await().status;
}

/// Binds a type 2 window of b and says its key.
std::uint32_t bound(pair& ends, ibv_mw* window, const ibv_mw_bind_info& info) {
  const std::uint32_t rkey = ibv_inc_rkey(window->rkey);
  REQUIRE(ends.b.send(bind(window, info, rkey)) == 0);
  const ibv_wc wc = ends.b.await();
  REQUIRE(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.opcode == IBV_WC_BIND_MW);
  return rkey;
}

}  // namespace

TEST_CASE("a type 2 window opens its bytes, and not one more", "[qp]") {
  pair ends;
  const std::uint32_t rkey = bound(ends, ends.b.add_window(IBV_MW_TYPE_2), on(ends.b, 100, 64));
  CHECK(write(ends, rkey, ends.b.address(100), 64) == IBV_WC_SUCCESS);
  SECTION("after") { CHECK(write(ends, rkey, ends.b.address(101), 64) == IBV_WC_REM_ACCESS_ERR); }
  SECTION("before") { CHECK(write(ends, rkey, ends.b.address(99), 1) == IBV_WC_REM_ACCESS_ERR); }
  CHECK(ends.b.state() == IBV_QPS_ERR);
}

TEST_CASE("a window may ask for local write, and opens no more for it", "[qp]") {
  pair ends;
  const std::uint32_t rkey =
      bound(ends, ends.b.add_window(IBV_MW_TYPE_2),
            on(ends.b, 0, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
  CHECK(write(ends, rkey, ends.b.address(0), 64) == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("a zero-based window counts from its own start", "[qp]") {
  pair ends;
  const std::uint32_t rkey =
      bound(ends, ends.b.add_window(IBV_MW_TYPE_2),
            on(ends.b, 4096, 64, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED));
  ends.a.fill(0, 64, 6);
  CHECK(write(ends, rkey, 0, 64) == IBV_WC_SUCCESS);
  CHECK(std::memcmp(&ends.a.memory[0], &ends.b.memory[4096], 64) == 0);
  CHECK(write(ends, rkey, 1, 64) == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("a type 2 window serves the QP that bound it alone", "[qp]") {
  pair ends;
  side other{pair_options{}};
  const std::uint32_t rkey = bound(ends, ends.b.add_window(IBV_MW_TYPE_2), on(ends.b, 0, 64));
  key_table& keys = ends.b.inner().local_node->keys();
  pinned pin;
  CHECK(keys.pin(rkey, ends.b.pd, other.qp->qp_num, IBV_ACCESS_REMOTE_READ, ends.b.address(), 8,
                 pin) == key_error::wrong_qp);
}

TEST_CASE("an invalidated window opens nothing, and can be bound again", "[qp]") {
  pair ends;
  ibv_mw* window = ends.b.add_window(IBV_MW_TYPE_2);
  const std::uint32_t rkey = bound(ends, window, on(ends.b, 0, 64));
  SECTION("by its owner") {
    REQUIRE(ends.b.send(invalidate(IBV_WR_LOCAL_INV, rkey)) == 0);
    const ibv_wc wc = ends.b.await();
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.opcode == IBV_WC_LOCAL_INV);
  }
  SECTION("by its user, who tells the owner") {
    REQUIRE(ends.b.receive(4) == 0);
    REQUIRE(ends.a.send(invalidate(IBV_WR_SEND_WITH_INV, rkey)) == 0);
    CHECK(ends.a.await().status == IBV_WC_SUCCESS);
    const ibv_wc wc = ends.b.await();
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.wc_flags == IBV_WC_WITH_INV);
    CHECK(wc.invalidated_rkey == rkey);
  }
  window->rkey = rkey;
  const std::uint32_t again = bound(ends, window, on(ends.b, 64, 64));
  CHECK(again != rkey);
  CHECK(write(ends, again, ends.b.address(64), 64) == IBV_WC_SUCCESS);
  CHECK(write(ends, rkey, ends.b.address(0), 64) == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("a bind that the rules forbid fails with MW_BIND and ends the QP", "[qp]") {
  pair_options how;
  SECTION("the region does not allow windows") {
    how.mr_access = all_access & ~unsigned{IBV_ACCESS_MW_BIND};
  }
  SECTION("a writable window on a region without local write") {
    how.mr_access = IBV_ACCESS_MW_BIND | IBV_ACCESS_REMOTE_READ;
  }
  SECTION("other rules") {}
  pair ends{how};
  ibv_mw* window = ends.b.add_window(IBV_MW_TYPE_2);
  ibv_mw_bind_info info = on(ends.b, 0, 64);
  if (how.mr_access == all_access) {
    switch (GENERATE(0, 1, 2, 3)) {
      case 0: info.length = (1 << 20) + 1; break;
      case 1: info.addr -= 1; break;
      case 2: info.length = 0; break;
      default:
        // The window is bound already.
        bound(ends, window, on(ends.b, 0, 64));
    }
  }
  REQUIRE(ends.b.send(bind(window, info, ibv_inc_rkey(window->rkey))) == 0);
  const ibv_wc wc = ends.b.await();
  CHECK(wc.status == IBV_WC_MW_BIND_ERR);
  CHECK(ends.b.state() == IBV_QPS_ERR);
}

TEST_CASE("a bind whose window or region is gone when it executes fails", "[qp]") {
  pair ends;
  side& b = ends.b;
  ibv_mw* window = verb::alloc_mw(b.pd, IBV_MW_TYPE_2);
  ibv_mr* region = verb::reg_mr(b.pd, b.memory.data(), 64, b.address(), all_access);
  b.to(IBV_QPS_SQD);
  ibv_mw_bind_info info = on(b, 0, 64);
  info.mr = region;
  REQUIRE(b.send(bind(window, info, ibv_inc_rkey(window->rkey))) == 0);
  const bool window_goes = GENERATE(false, true);
  if (window_goes) REQUIRE(verb::dealloc_mw(window) == 0);
  if (!window_goes) REQUIRE(verb::dereg_mr(region) == 0);
  b.to(IBV_QPS_RTS);
  CHECK(b.await().status == IBV_WC_MW_BIND_ERR);
  if (!window_goes) REQUIRE(verb::dealloc_mw(window) == 0);
  if (window_goes) REQUIRE(verb::dereg_mr(region) == 0);
}

TEST_CASE("only a live type 2 window of this QP can be invalidated", "[qp]") {
  pair ends;
  pair others;
  std::uint32_t rkey = 0;
  switch (GENERATE(0, 1, 2)) {
    case 0: rkey = ends.b.mr->rkey; break;
    case 1: rkey = ends.b.add_window(IBV_MW_TYPE_2)->rkey; break;
    default: rkey = bound(others, others.b.add_window(IBV_MW_TYPE_2), on(others.b, 0, 64));
  }
  SECTION("by its owner") {
    REQUIRE(ends.b.send(invalidate(IBV_WR_LOCAL_INV, rkey)) == 0);
    CHECK(ends.b.await().status == IBV_WC_MW_BIND_ERR);
  }
  SECTION("by its user") {
    REQUIRE(ends.b.receive(4) == 0);
    REQUIRE(ends.a.send(invalidate(IBV_WR_SEND_WITH_INV, rkey)) == 0);
    CHECK(ends.a.await().status == IBV_WC_REM_OP_ERR);
    CHECK(ends.b.await().status == IBV_WC_REM_INV_REQ_ERR);
  }
  CHECK(ends.b.state() == IBV_QPS_ERR);
}

TEST_CASE("a type 1 window is bound, bound elsewhere, and unbound by length zero", "[qp]") {
  pair ends;
  ibv_mw* window = ends.b.add_window(IBV_MW_TYPE_1);
  ibv_mw_bind bind{};
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = on(ends.b, 0, 64);
  REQUIRE(verb::bind_mw(ends.b.qp, window, &bind) == 0);
  CHECK(ends.b.await().opcode == IBV_WC_BIND_MW);
  const std::uint32_t first = window->rkey;
  CHECK(write(ends, first, ends.b.address(0), 64) == IBV_WC_SUCCESS);
  bind.bind_info = on(ends.b, 64, 64);
  REQUIRE(verb::bind_mw(ends.b.qp, window, &bind) == 0);
  CHECK(ends.b.await().status == IBV_WC_SUCCESS);
  CHECK(write(ends, window->rkey, ends.b.address(64), 64) == IBV_WC_SUCCESS);
  SECTION("the old key is dead") {
    CHECK(write(ends, first, ends.b.address(0), 64) == IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("no length, no access") {
    bind.bind_info = on(ends.b, 0, 0);
    REQUIRE(verb::bind_mw(ends.b.qp, window, &bind) == 0);
    CHECK(ends.b.await().status == IBV_WC_SUCCESS);
    CHECK(write(ends, window->rkey, ends.b.address(64), 8) == IBV_WC_REM_ACCESS_ERR);
  }
}
