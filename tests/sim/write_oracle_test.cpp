#include "faulty_device.hpp"
#include "raw_side.hpp"
#include "sim/world_state.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <functional>
#include <memory>
#include <string>

using namespace cordma;
using namespace std::chrono_literals;
using Catch::Contains;
using sim::detail::host_state;
using sim::detail::world_state;
using sim::detail::write_oracle;
using test::device_fault;
using test::faulty_device;
using test::raw_side;
using test::raw_world;

namespace {

/// A world whose oracle is told of WRITEs from host a to 64 bytes of host b.
struct judged_writes {
  static constexpr std::uint32_t rkey = 77;
  world_state world{1, sim::faults::none()};
  host_state& a = world.add_host("a");
  host_state& b = world.add_host("b");
  host_state& third = world.add_host("c");
  write_oracle writes{world, world.memory()};
  std::array<std::byte, 64> source{}, target{};

  [[nodiscard]] std::uint64_t address(std::size_t at) const {
    return reinterpret_cast<std::uint64_t>(target.data() + at);
  }
  void lend() { world.memory().lent(b, address(0), target.size(), rkey, true); }
  write_oracle::ticket post(std::size_t at, std::uint32_t bytes) {
    ibv_sge piece{
        .addr = reinterpret_cast<std::uint64_t>(source.data() + at), .length = bytes, .lkey = 0};
    ibv_send_wr wr = test::request(IBV_WR_RDMA_WRITE);
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = address(at);
    wr.wr.rdma.rkey = rkey;
    return writes.posted(b, wr);
  }
  /// Returns the text of what is found; empty: nothing is.
  std::string after(const std::function<void()>& happens) {
    if (!third.is_running()) third.start([](runtime&) -> task<> { co_await sleep_for(1ms); }, {});
    world.call_at(world.now(), happens);
    try {
      world.run(1s);
    } catch (const sim::finding& found) {
      return found.what();
    }
    return {};
  }
};

/// Goes also if its program is destroyed in the middle.
using owned_qp = std::unique_ptr<ibv_qp, decltype(&::ibv_destroy_qp)>;
using owned_ah = std::unique_ptr<ibv_ah, decltype(&::ibv_destroy_ah)>;

/// Makes a queue pair for datagrams, and brings it to RTS.
owned_qp make_datagram_qp(const raw_side& own) {
  ibv_qp_init_attr how{};
  how.send_cq = how.recv_cq = own.cq;
  how.cap = {.max_send_wr = 4,
             .max_recv_wr = 4,
             .max_send_sge = 2,
             .max_recv_sge = 2,
             .max_inline_data = 0};
  how.qp_type = IBV_QPT_UD;
  owned_qp made{::ibv_create_qp(own.pd, &how), &::ibv_destroy_qp};
  ibv_qp* const qp = made.get();
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  to.qkey = 17;
  CHECK(::ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) ==
        0);
  to.qp_state = IBV_QPS_RTR;
  CHECK(::ibv_modify_qp(qp, &to, IBV_QP_STATE) == 0);
  to.qp_state = IBV_QPS_RTS;
  CHECK(::ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
  return made;
}

/// Makes a device read each request's memory 8 bytes behind where it is.
void misread(ibv_send_wr& wr) {
  if (wr.num_sge != 0) wr.sg_list[0].addr += 8;
}

}  // namespace

TEST_CASE("nothing is found of WRITEs and atomics as they should be", "[sim]") {
  for (std::uint64_t seed = 1; seed <= 32; ++seed) {
    raw_world both{seed};
    CHECK(both.play(
              [](raw_side& own, raw_side& other) -> task<> {
                for (std::size_t n = 0; n < own.memory.size(); ++n) own.memory[n] = std::byte(n);
                for (const std::size_t from : {0u, 7u})
                  own.send(test::request(IBV_WR_RDMA_WRITE, &other, 64),
                           {own.piece(from, 1500), own.piece(2000, 20)});
                ibv_send_wr wr = test::request(IBV_WR_RDMA_WRITE, &other, 2048);
                wr.send_flags |= IBV_SEND_INLINE;
                own.send(wr, {own.piece(3000, 8)});
                own.memory[3000] = std::byte{17};
                for (unsigned n = 0; n < 3; ++n) static_cast<void>(co_await own.completion());
              },
              [](raw_side&, raw_side&) -> task<> { co_await sleep_for(1s); }) == "");
  }
}

TEST_CASE("a WRITE that lands with other bytes than were posted is found", "[sim]") {
  const device_fault wrong{{}, &misread};
  raw_world both;
  CHECK_THAT(
      both.play(
          [](raw_side& own, raw_side& other) -> task<> {
            own.memory[12] = std::byte{1};
            own.send(test::request(IBV_WR_RDMA_WRITE, &other, 64), {own.piece(0, 8)});
            static_cast<void>(co_await own.completion());
          },
          [](raw_side&, raw_side&) -> task<> { co_await sleep_for(1s); }, &faulty_device::make),
      Contains("a WRITE lands in memory of host b with other bytes than were posted"));
}

TEST_CASE("a datagram that arrives with other bytes than were sent is found", "[sim]") {
  const auto found_with = [](std::function<void(ibv_send_wr&)> misread_by) {
    const device_fault wrong{{}, std::move(misread_by)};
    raw_world both;
    ibv_qp* receiver = nullptr;
    return both.play(
        [&](raw_side& own, raw_side& other) -> task<> {
          const owned_qp qp = make_datagram_qp(own);
          while (receiver == nullptr) co_await sleep_for(1ms);
          ibv_ah_attr path{};
          path.is_global = 1;
          path.port_num = 1;
          path.grh.dgid = other.gid;
          path.grh.hop_limit = 1;
          const owned_ah to{::ibv_create_ah(own.pd, &path), &::ibv_destroy_ah};
          own.memory[12] = std::byte{1};
          ibv_sge piece = own.piece(0, 8);
          ibv_send_wr wr = test::request(IBV_WR_SEND);
          wr.sg_list = &piece;
          wr.num_sge = 1;
          wr.wr.ud = {.ah = to.get(), .remote_qpn = receiver->qp_num, .remote_qkey = 17};
          ibv_send_wr* bad = nullptr;
          CHECK(::ibv_post_send(qp.get(), &wr, &bad) == 0);
          static_cast<void>(co_await own.completion());
          while (receiver != nullptr) co_await sleep_for(1ms);
        },
        [&](raw_side& own, raw_side&) -> task<> {
          const owned_qp qp = make_datagram_qp(own);
          ibv_sge piece = own.piece(0, 100);
          ibv_recv_wr wr{.wr_id = 3, .next = nullptr, .sg_list = &piece, .num_sge = 1};
          ibv_recv_wr* bad = nullptr;
          CHECK(::ibv_post_recv(qp.get(), &wr, &bad) == 0);
          receiver = qp.get();
          static_cast<void>(co_await own.completion());
          receiver = nullptr;
        },
        &faulty_device::make);
  };
  CHECK(found_with({}) == "");
  CHECK_THAT(found_with(&misread), Catch::StartsWith("host b, qp ") &&
                                       Contains("a datagram arrives that was not sent, or with"));
}

TEST_CASE("a piece that no request was posted for is found in lent memory", "[sim]") {
  judged_writes of;
  const auto landed = [&](std::size_t at, std::uint64_t bytes) {
    return of.after([&, at, bytes] { of.writes.landed(of.b, of.address(at), bytes, of.rkey); });
  };
  CHECK(landed(0, 8) == "");  // Keys that a program gives out itself may have other addresses.
  of.lend();
  of.post(0, 16);
  CHECK(landed(8, 8) == "");
  CHECK_THAT(landed(12, 8), Contains("wrote 8 bytes into memory of host b for which it posted no "
                                     "request"));
}

TEST_CASE("a piece may be of each request for where it lands, also of one that has failed",
          "[sim]") {
  judged_writes of;
  of.source[0] = std::byte{1};
  of.post(0, 16);  // Fails, and lands late.
  of.source[0] = std::byte{2};
  of.writes.forget(of.post(0, 16));
  of.source[0] = std::byte{3};
  of.post(0, 16);
  const auto landed = [&](unsigned first) {
    return of.after([&, first] {
      of.target[0] = std::byte(first);
      of.writes.landed(of.b, of.address(0), 16, of.rkey);
    });
  };
  CHECK(landed(1) == "");
  CHECK(landed(3) == "");
  CHECK_THAT(landed(2), Contains("other bytes than were posted"));
}

TEST_CASE("a WRITE that succeeds before all of it has landed is found", "[sim]") {
  judged_writes of;
  of.lend();
  const auto succeeds_after = [&](std::uint64_t landed) {
    const write_oracle::ticket posted = of.post(0, 16);
    return of.after([&, landed, posted] {
      of.writes.landed(of.b, of.address(0), landed, of.rkey);
      of.writes.succeeded(of.a, posted);
    });
  };
  CHECK(succeeds_after(16) == "");
  CHECK_THAT(succeeds_after(8), Contains("of host a succeeds, and 8 of its 16 bytes have landed"));
}

TEST_CASE("no WRITE is judged once there are requests that are not seen, and none of a dead host",
          "[sim]") {
  judged_writes of;
  of.source[0] = std::byte{1};
  of.post(0, 16);
  of.writes.forget(of.b);
  CHECK(of.after([&] { of.writes.landed(of.b, of.address(0), 16, of.rkey); }) == "");
  of.post(0, 16);
  of.writes.stop();
  CHECK(of.after([&] { of.writes.landed(of.b, of.address(0), 16, of.rkey); }) == "");
}
