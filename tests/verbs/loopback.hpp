#pragma once

#include "support/device.hpp"
#include "support/raw_verbs.hpp"

#include <cordma/base/error.hpp>
#include <cordma/verbs/memory_region.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <vector>

namespace cordma::verbs::test {

using cordma::test::device_name;
namespace raw = support::raw;

/// A queue pair connected to itself, and all that it needs; made in this order.
struct loopback {
  context ctx{device_name()};
  port_info port = ctx.active_port();
  gid_entry local = choose_gid(ctx.gid_table(port.number));
  protection_domain pd{ctx};
  std::vector<std::byte> bytes = std::vector<std::byte>(8192);
  memory_region mr{pd, bytes.data(), bytes.size(), verbs::access::local_write};
  completion_channel channel{ctx};
  completion_queue cq{ctx, 16, &channel};
  queue_pair qp{pd, cq, cq, {.send_wr_max = 4, .recv_wr_max = 4, .inline_max = 16}};

  rtr_attributes rtr() const {
    return {.peer = address_vector::by_gid(local.gid, local.index, port.lid),
            .path_mtu = port.mtu_active,
            .dest_qpn = qp.num(),
            .rq_psn = 0x123456};
  }
  static rts_attributes rts() { return {.sq_psn = 0x123456}; }
  void connect() {
    qp.to_init(port.number);
    qp.to_rtr(rtr());
    qp.to_rts(rts());
  }

  int post_recv() {
    return raw::try_post(qp, raw::receive{raw::piece(mr.address(), 64, mr.lkey()), 1});
  }
  int post_send() {
    raw::request message{IBV_WR_SEND, raw::piece(mr.address() + 4096, 64, mr.lkey())};
    message.wr.wr_id = 2;
    return raw::try_post(qp, message);
  }
  /// Polls until `count` completions came; the device finishes them within a bounded time.
  std::vector<ibv_wc> reap(std::size_t count) {
    std::vector<ibv_wc> all;
    for (unsigned long spins = 0; all.size() < count && spins < 500'000'000; ++spins) {
      std::array<ibv_wc, 4> some{};
      const int n = cq.poll(some);
      REQUIRE(n >= 0);
      all.insert(all.end(), some.begin(), some.begin() + n);
    }
    REQUIRE(all.size() == count);
    return all;
  }
};

template <class Action>
cordma::failure failure_of(Action action) {
  try {
    action();
  } catch (const cordma::error& e) {
    return e.failure();
  }
  FAIL("nothing failed");
  return {};
}

}  // namespace cordma::verbs::test
