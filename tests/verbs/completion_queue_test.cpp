#include <cordma/verbs/completion_queue.hpp>

#include "verbs/device.hpp"
#include "verbs/loopback.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <utility>

using namespace cordma::verbs;
using namespace cordma::verbs::test;

TEST_CASE("a message to itself completes, with one event that is acknowledged by itself",
          "[verbs][device][E2]") {
  loopback l;
  l.connect();
  CHECK(l.channel.get_event() == nullptr);
  std::memset(l.bytes.data() + 4096, 0x5a, 64);
  REQUIRE(l.cq.arm() == 0);
  REQUIRE(l.post_recv() == 0);
  REQUIRE(l.post_send() == 0);
  for (const ibv_wc& wc : l.reap(2)) CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(std::memcmp(l.bytes.data(), l.bytes.data() + 4096, 64) == 0);

  completion_queue moved = std::move(l.cq);  // The count follows the queue.
  CHECK(l.channel.get_event() == moved.native_handle());
  CHECK(moved.unacknowledged_events() == 1);
  l.cq = std::move(moved);
  CHECK(l.cq.unacknowledged_events() == 1);
  l.qp.destroy();
  l.qp.destroy();
  l.cq.destroy();  // Hangs when the event is not acknowledged.
  CHECK_FALSE(next_async_event(l.ctx).has_value());
}
