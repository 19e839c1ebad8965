#include "queue/callback_queue_pair.hpp"

#include "support/held.hpp"
#include "support/loopback.hpp"
#include "support/until.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

using namespace cordma;
using test::held_by;
using test::loopback;
using test::nothing;

namespace {

constexpr verbs::queue_pair_capabilities few{
    .send_wr_max = 8, .recv_wr_max = 8, .send_sge_max = 1, .recv_sge_max = 1, .inline_max = 16};

/// One end for a handler alone: it notes what it is told.
struct end final : message_handler {
  explicit end(loopback& link)
      : memory{link.memory(64)},
        qp{std::in_place,
           link.driver,
           link.pd,
           few,
           0,
           nullptr,
           queue_pair_role{.has_atomics = false,
                           .sends = request_kind::agent_send,
                           .receives = request_kind::agent_receive}} {
    qp->hand_messages_to(*this);
  }

  void post_receive(std::uint32_t number) {
    ibv_sge piece{.addr = reinterpret_cast<std::uint64_t>(memory.bytes().data()),
                  .length = 64,
                  .lkey = memory.slice().lkey()};
    ibv_recv_wr wr{.wr_id = number, .next = nullptr, .sg_list = &piece, .num_sge = 1};
    qp->post_recvs({&wr, 1});
  }
  bool send(unsigned flags = 0) {
    std::array<std::byte, 4> bytes{};
    const const_local_mr_slice piece = local_mr_slice{bytes.data(), bytes.size(), nullptr, 0, 0};
    const wr_summary request{.kind = request_kind::agent_send,
                             .opcode = IBV_WR_SEND,
                             .send_flags = flags,
                             .local = {&piece, 1}};
    ibv_send_wr wr;
    ibv_sge sge;
    return qp->post_detached({{&request, 1}, &wr, &sge});
  }

  local_mr memory;
  std::vector<std::uint32_t> received;
  unsigned rooms = 0;
  unsigned idles = 0;
  unsigned failures = 0;
  bool is_gone = false;
  std::optional<callback_queue_pair> qp;

 private:
  void on_receive(std::uint32_t number, const ibv_wc& wc) noexcept override {
    if (wc.status == IBV_WC_SUCCESS) received.push_back(number);
  }
  bool on_room() noexcept override {
    ++rooms;
    return false;
  }
  void on_idle_awaited() noexcept override {
    ++idles;
    send(IBV_SEND_SIGNALED);
  }
  void on_failure() noexcept override { ++failures; }
  void on_gone() noexcept override { is_gone = true; }
};

struct ends {
  ends() : one{link}, other{link} {
    link.connect(*one.qp, *other.qp);
    for (std::uint32_t n = 0; n < 8; ++n) other.post_receive(100 + n);
  }
  [[nodiscard]] request_counters counted(request_kind kind) const {
    return link.driver.requests().of(kind);
  }
  loopback link;
  end one;
  end other;
};

}  // namespace

TEST_CASE("a handler alone posts, and is told of receives by the numbers it gave",
          "[queue][device]") {
  ends e;
  CHECK(e.other.qp->posted_recvs() == 8);
  REQUIRE(e.one.send());
  REQUIRE(e.one.send(IBV_SEND_SIGNALED));
  e.link.run(test::until(e.link.executor, [&] { return e.other.received.size() == 2; }));
  CHECK(e.other.received == std::vector<std::uint32_t>{100, 101});
  CHECK(e.other.qp->posted_recvs() == 6);
  e.link.run(e.one.qp->sends_idle());
  CHECK(e.one.rooms == 1);
  CHECK(e.one.idles == 0);
}

TEST_CASE("who waits for idle has the handler end what was sent without a completion",
          "[queue][device]") {
  ends e;
  REQUIRE(e.one.send());
  e.link.run(e.one.qp->sends_idle());
  CHECK(e.one.idles == 1);
  CHECK(held_by(*e.one.qp) == nothing);
}

TEST_CASE("a request that goes behind the end of a wait for idle does not prolong the wait",
          "[queue][device]") {
  ends e;
  REQUIRE(e.one.send());
  static_cast<void>(e.one.qp->sends_idle());
  REQUIRE(e.one.idles == 1);
  REQUIRE(e.one.send());
  const auto is_idle = [&] { return e.one.qp->sends().is_idle(); };
  const auto waited = e.link.run(
      as_result(with_timeout(test::until(e.link.executor, is_idle), std::chrono::seconds{10})));
  CHECK(waited.has_value());
  CHECK(e.one.idles == 2);
}

TEST_CASE("what a handler alone posts counts as its kinds, whatever becomes of it",
          "[queue][device]") {
  ends e;
  REQUIRE(e.one.send());
  e.link.run(e.one.qp->sends_idle());
  e.link.run(test::until(e.link.executor, [&] { return e.other.received.size() == 2; }));
  REQUIRE(e.one.send());
  e.one.qp->abort({.code = errc::closed, .call = "test"});
  e.other.qp->abort({.code = errc::closed, .call = "test"});
  e.link.run(e.one.qp->drained_event().wait());
  e.one.qp.reset();
  e.other.qp.reset();
  CHECK(e.one.failures == 1);
  CHECK(e.one.is_gone);
  const request_counters sends = e.counted(request_kind::agent_send);
  CHECK(sends.posted == sends.completed + sends.failed);
  CHECK(sends.completed >= 2);
  CHECK(sends.posted >= 4);  // The last flushed the broken queue pair.
  const request_counters receives = e.counted(request_kind::agent_receive);
  CHECK(receives.posted == 8);
  CHECK(receives.completed + receives.failed == 8);
  CHECK(e.counted(request_kind::send).posted == 0);
  CHECK(e.counted(request_kind::receive).posted == 0);
}

TEST_CASE("a handler alone is told that there is no room", "[queue][device]") {
  ends e;
  unsigned sent = 0;
  while (e.one.send()) ++sent;
  CHECK(sent == e.one.qp->sends().depth());
  CHECK_FALSE(e.one.qp->has_failed());
  e.link.run(test::until(e.link.executor, [&] { return e.one.rooms > 0; }));
  CHECK(e.one.qp->can_post_detached());
}
