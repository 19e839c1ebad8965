#include "simulation/world.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

// Datagrams that arrive twice, or in another order.

using namespace softverbs;
using namespace softverbs::test;

namespace {

struct copy_deleter {
  void operator()(softverbs_copy* copy) const noexcept { softverbs_free_copy(copy); }
};
using copy_of_frame = std::unique_ptr<softverbs_copy, copy_deleter>;

/// Datagram queue pairs on two hosts.
class datagrams {
 public:
  datagrams() {
    const on_host here{both.host(1)};
    ibv_ah_attr path = side::path();
    path.grh.dgid = plain_world::gid_of(2);
    ah_ = verb::create_ah(both.a().pd, &path);
    REQUIRE(ah_ != nullptr);
  }
  ~datagrams() {
    const on_host here{both.host(1)};
    verb::destroy_ah(ah_);
  }
  datagrams(const datagrams&) = delete;

  /// Lets host 2 take that many datagrams.
  void receive(unsigned count) {
    const on_host here{both.host(2)};
    for (unsigned n = 0; n < count; ++n)
      REQUIRE(both.b().receive(n, {both.b().piece(std::size_t{n} * 100, 100)}) == 0);
  }
  /// Sends a datagram of one byte; gives the end that it leaves.
  softverbs_end send(int byte) {
    both.a().fill(0, 1, byte);
    ibv_send_wr wr = request(IBV_WR_SEND);
    wr.wr.ud = {.ah = ah_, .remote_qpn = both.b().qp->qp_num, .remote_qkey = 0x1234};
    both.send(wr, {both.a().piece(0, 1)});
    both.world.work();
    REQUIRE(both.world.in_flight.size() == 1);
    return std::exchange(both.world.in_flight, {}).front().first;
  }
  /// The datagrams that host 2 has received.
  std::vector<int> received() {
    both.world.run();
    const on_host here{both.host(2)};
    std::vector<int> bytes;
    for (ibv_wc wc{}; verb::poll_cq(both.b().cq, 1, &wc) == 1;)
      bytes.push_back(std::to_integer<int>(both.b().memory[wc.wr_id * 100 + 40]));
    return bytes;
  }

  far_pair both{{.type = IBV_QPT_UD}};

 private:
  ibv_ah* ah_ = nullptr;
};

}  // namespace

TEST_CASE("a datagram that was copied arrives twice", "[simulation]") {
  datagrams pair;
  pair.receive(3);
  const softverbs_end from = pair.send(1);
  const copy_of_frame copy{softverbs_copy_frame(&from)};
  REQUIRE(copy != nullptr);
  softverbs_deliver(&from);
  softverbs_inject(&from, copy.get());
  CHECK(pair.received() == std::vector{1, 1});
}

TEST_CASE("a datagram arrives behind a later one", "[simulation]") {
  datagrams pair;
  pair.receive(3);
  softverbs_end from = pair.send(1);
  const copy_of_frame copy{softverbs_copy_frame(&from)};
  REQUIRE(copy != nullptr);
  softverbs_lose(&from);
  from = pair.send(2);
  softverbs_deliver(&from);
  CHECK(pair.received() == std::vector{2});
  softverbs_inject(&from, copy.get());
  CHECK(pair.received() == std::vector{1});
}

TEST_CASE("no copy of a datagram arrives at a host that is gone, or whose port is down",
          "[simulation]") {
  datagrams pair;
  pair.receive(3);
  const softverbs_end from = pair.send(1);
  const copy_of_frame copy{softverbs_copy_frame(&from)};
  REQUIRE(copy != nullptr);
  REQUIRE(softverbs_set_port(pair.both.host(2), 0) == 0);
  softverbs_inject(&from, copy.get());
  CHECK(pair.received().empty());
  REQUIRE(softverbs_set_port(pair.both.host(2), 1) == 0);
  softverbs_inject(&from, copy.get());
  CHECK(pair.received() == std::vector{1});
  softverbs_kill_host(pair.both.host(2));
  softverbs_inject(&from, copy.get());
  CHECK(softverbs_copy_frame(&from) == nullptr);
}

TEST_CASE("a frame of a connection has no copy", "[simulation]") {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    far_pair both{{.type = type}};
    both.send(request(IBV_WR_SEND), {both.a().piece(0, 64)});
    both.world.work();
    REQUIRE(both.world.in_flight.size() == 1);
    CHECK(softverbs_copy_frame(&both.world.in_flight.front().first) == nullptr);
  }
}
