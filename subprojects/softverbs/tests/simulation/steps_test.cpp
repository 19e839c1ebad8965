#include "simulation/world.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <utility>
#include <vector>

// The least that a simulated device does at once.

using namespace softverbs;
using namespace softverbs::test;

namespace {

std::vector<softverbs_step> steps_of(softverbs_host* host) {
  std::vector<softverbs_step> steps(16);
  steps.resize(softverbs_list_steps(host, steps.data(), 16));
  return steps;
}

std::vector<softverbs_step_kind> kinds_of(softverbs_host* host) {
  std::vector<softverbs_step_kind> kinds;
  for (const softverbs_step& one : steps_of(host)) kinds.push_back(one.kind);
  return kinds;
}

/// Does the first step of that kind.
void do_step(softverbs_host* host, softverbs_step_kind kind) {
  const std::vector<softverbs_step> steps = steps_of(host);
  const auto found = std::ranges::find(steps, kind, &softverbs_step::kind);
  REQUIRE(found != steps.end());
  softverbs_do_step(host, &*found);
}

/// Lets all frames that are under way arrive, of which nothing is taken yet.
void deliver_all(plain_world& world) {
  for (const auto& [from, frame] : std::exchange(world.in_flight, {})) softverbs_deliver(&from);
}

using kinds = std::vector<softverbs_step_kind>;

}  // namespace

TEST_CASE("a step takes one frame", "[simulation]") {
  far_pair both;
  both.a().fill(0, 3 * segment_bytes_max, 3);
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 3 * segment_bytes_max)});
  both.world.work();
  REQUIRE(both.world.in_flight.size() == 3);
  deliver_all(both.world);
  for (std::size_t taken = 1; taken <= 3; ++taken) {
    CHECK(kinds_of(both.host(2)) == kinds{SOFTVERBS_LINK});
    do_step(both.host(2), SOFTVERBS_LINK);
    CHECK(both.world.writes.size() == taken);
  }
  CHECK(kinds_of(both.host(2)) == kinds{SOFTVERBS_ANSWER});
  CHECK(both.world.in_flight.empty());
  do_step(both.host(2), SOFTVERBS_ANSWER);
  CHECK(both.world.in_flight.size() == 1);
  CHECK(kinds_of(both.host(2)).empty());
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
}

TEST_CASE("a host hears of a frame that was taken if it waits for the room", "[simulation]") {
  const bool waits = GENERATE(false, true);
  const std::size_t length = waits ? 2 * ring_bytes : 8;
  far_pair both{{.bytes = length}};
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, length)});
  both.world.work();
  deliver_all(both.world);
  both.world.told_work.clear();
  while (!kinds_of(both.host(2)).empty() && kinds_of(both.host(2))[0] == SOFTVERBS_LINK)
    do_step(both.host(2), SOFTVERBS_LINK);
  CHECK((std::ranges::count(both.world.told_work, both.host(1)) > 0) == waits);
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
}

TEST_CASE("a link holds as many bytes as its world says, in each direction", "[simulation]") {
  const std::uint32_t link_bytes = GENERATE(0u, 256 * 1024u, 512 * 1024u);
  const ibv_wr_opcode opcode = GENERATE(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ);
  const std::size_t length = 2 * ring_bytes + 100;
  far_pair both{{.bytes = length}, link_bytes};
  both.a().fill(0, length, 3);
  both.b().fill(0, length, 5);
  both.send(one_sided(opcode, both.b()), {both.a().piece(0, length)});
  both.world.work();
  if (opcode == IBV_WR_RDMA_READ) {
    deliver_all(both.world);
    both.world.work();
  }
  std::size_t held = 0;
  for (const auto& [from, frame] : both.world.in_flight) held += frame_bytes(frame.bytes);
  const std::size_t most = link_bytes == 0 ? ring_bytes : link_bytes;
  CHECK(held <= most);
  CHECK(held > most - frame_bytes(segment_bytes_max));
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  CHECK(both.a().memory == both.b().memory);
}

TEST_CASE("an answer is sent before or after the next request is taken", "[simulation]") {
  const bool answers_first = GENERATE(false, true);
  far_pair both;
  for (const std::size_t at : {0u, 8u})
    both.send(one_sided(IBV_WR_RDMA_WRITE, both.b(), at, at), {both.a().piece(0, 8)});
  both.world.work();
  REQUIRE(both.world.in_flight.size() == 2);
  deliver_all(both.world);
  do_step(both.host(2), SOFTVERBS_LINK);
  CHECK(kinds_of(both.host(2)) == kinds{SOFTVERBS_LINK, SOFTVERBS_ANSWER});
  do_step(both.host(2), answers_first ? SOFTVERBS_ANSWER : SOFTVERBS_LINK);
  do_step(both.host(2), answers_first ? SOFTVERBS_LINK : SOFTVERBS_ANSWER);
  // An acknowledgement stands for all requests before it.
  CHECK(both.world.in_flight.size() == 1);
  both.world.run();
  CHECK(both.completion(1).wr_id == 0);
  CHECK(both.completion(1).wr_id == 8);
}

TEST_CASE("an answer that has come is taken before a later request of the same host",
          "[simulation]") {
  far_pair both;
  {
    const on_host here{both.host(1)};
    REQUIRE(both.a().receive(9, {both.a().piece(0, 64)}) == 0);
  }
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 8)});
  both.world.work();
  deliver_all(both.world);
  do_step(both.host(2), SOFTVERBS_LINK);
  do_step(both.host(2), SOFTVERBS_ANSWER);
  {
    const on_host here{both.host(2)};
    REQUIRE(both.b().send(request(IBV_WR_SEND), {both.b().piece(0, 8)}) == 0);
  }
  both.world.work();
  REQUIRE(both.world.in_flight.size() == 2);
  softverbs_end to;
  REQUIRE(softverbs_peer_end(&both.world.in_flight.back().first, &to) == 1);
  deliver_all(both.world);
  const softverbs_step on_link{SOFTVERBS_LINK, to.link};
  softverbs_do_step(both.host(1), &on_link);
  const on_host here{both.host(1)};
  ibv_wc wc{};
  REQUIRE(verb::poll_cq(both.a().cq, 1, &wc) == 1);
  CHECK(wc.opcode == IBV_WC_RDMA_WRITE);
  CHECK(verb::poll_cq(both.a().cq, 1, &wc) == 0);
  softverbs_do_step(both.host(1), &on_link);
  REQUIRE(verb::poll_cq(both.a().cq, 1, &wc) == 1);
  CHECK(wc.wr_id == 9);
}

TEST_CASE("a step kicks those that waited for space on a link", "[simulation]") {
  far_pair both{{.bytes = 2 * ring_bytes}};
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 2 * ring_bytes)});
  both.world.work();
  const std::size_t sent = both.world.in_flight.size();
  CHECK(kinds_of(both.host(1)).empty());
  deliver_all(both.world);
  while (!kinds_of(both.host(2)).empty()) do_step(both.host(2), SOFTVERBS_LINK);
  CHECK(kinds_of(both.host(1)) == kinds{SOFTVERBS_SPACE});
  do_step(both.host(1), SOFTVERBS_SPACE);
  CHECK(kinds_of(both.host(1)) == kinds{SOFTVERBS_RUN});
  do_step(both.host(1), SOFTVERBS_RUN);
  CHECK(both.world.in_flight.size() > 0);
  CHECK(sent > 0);
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
}

TEST_CASE("a step of time runs one queue pair", "[simulation]") {
  far_pair both;
  const on_host here{both.host(1)};
  side second{{.peer = plain_world::gid_of(2)}};
  second.to_init();
  second.to_rtr(both.b().qp->qp_num, 0);
  second.to_rts(0);
  for (side* const own : {&both.a(), &second})
    REQUIRE(own->send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {own->piece(0, 8)}) == 0);
  both.world.work();
  both.world.now = softverbs_next_timer(both.host(1));
  // The requests of both have waited in vain.
  CHECK(kinds_of(both.host(1)) == kinds{SOFTVERBS_TIME});
  ibv_wc wc{};
  do_step(both.host(1), SOFTVERBS_TIME);
  const int first = verb::poll_cq(both.a().cq, 1, &wc);
  CHECK(first + verb::poll_cq(second.cq, 1, &wc) == 1);
  do_step(both.host(1), SOFTVERBS_TIME);
  CHECK(verb::poll_cq(first == 0 ? both.a().cq : second.cq, 1, &wc) == 1);
}
