#include <cordma/detail/transfer/receive_batch.hpp>

#include "support/loopback.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/scope.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

using namespace cordma;
using test::loopback;

namespace {

/// Writes down how many receives, or sends, each doorbell is for, and whose.
class bells {
 public:
  struct rung {
    ibv_qp* qp;
    bool is_receive;
    std::size_t count;
    bool operator==(const rung&) const = default;
  };
  explicit bells(loopback& link) : ops_{link.ctx.native_handle()->ops} {
    real_recv_ = std::exchange(ops_.post_recv, &post_recv);
    real_send_ = std::exchange(ops_.post_send, &post_send);
    all.clear();
    refused_from.reset();
  }
  ~bells() {
    ops_.post_recv = real_recv_;
    ops_.post_send = real_send_;
  }
  bells(const bells&) = delete;

  static inline std::vector<rung> all;
  /// Of those to come, which receive of a doorbell is refused, and all after it.
  static inline std::optional<std::size_t> refused_from;

  [[nodiscard]] static std::vector<std::size_t> counts() {
    std::vector<std::size_t> of_receives;
    for (const rung& each : all)
      if (each.is_receive) of_receives.push_back(each.count);
    return of_receives;
  }

 private:
  template <class Request>
  static std::size_t length(const Request* wr) {
    std::size_t count = 0;
    for (; wr != nullptr; wr = wr->next) ++count;
    return count;
  }
  static int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    all.push_back({qp, true, length(wr)});
    if (!refused_from) return real_recv_(qp, wr, bad);
    ibv_recv_wr* last = wr;
    for (std::size_t i = 1; i < *refused_from; ++i) last = last->next;
    *bad = std::exchange(last->next, nullptr);
    const int rc = real_recv_(qp, wr, &last);
    return rc != 0 ? rc : ENOMEM;
  }
  static int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    all.push_back({qp, false, length(wr)});
    return real_send_(qp, wr, bad);
  }
  static inline decltype(ibv_context_ops::post_recv) real_recv_ = nullptr;
  static inline decltype(ibv_context_ops::post_send) real_send_ = nullptr;
  ibv_context_ops& ops_;
};

task<> once_told(event& told, std::function<task<>()> body) {
  co_await told.wait();
  co_await body();
}

struct inbox {
  explicit inbox(const test::loopback_options& options = {}) : link{options} {}

  /// That many have come, to a queue that has `posted` receives, and nobody has taken one.
  void receive(std::size_t messages, std::size_t posted) {
    for (std::size_t i = 0; i < posted; ++i) link.b->post_recv(to.slice(0, 8));
    for (std::size_t i = 0; i < messages; ++i) link.run(link.a->send(from.slice(0, 8)));
    link.run_until([&] { return link.b->receives().pending_messages() == messages; });
  }
  task<> take_and_post(std::size_t messages) {
    for (; messages > 0; --messages) {
      static_cast<void>(co_await link.b->next_message());
      link.b->post_recv(to.slice(0, 8));
    }
  }
  void run_in_a_turn(std::function<task<>()> body) {
    event told{link.home};
    scope tasks{link.home};
    tasks.spawn(once_told(told, std::move(body)));
    told.set();
    link.run(tasks.join());
  }

  loopback link;
  local_mr from = link.memory(64), to = link.memory(64);
};

}  // namespace

TEST_CASE(
    "the receives of who goes through messages wait for each other, never more than there are",
    "[transfer][device]") {
  inbox box;
  box.receive(32, 32);
  const bells heard{box.link};
  box.run_in_a_turn([&] { return box.take_and_post(32); });
  // The device has none at first, and the last message is followed by none.
  CHECK(bells::counts() == std::vector<std::size_t>{1, 2, 4, 8, 16, 1});
  CHECK(box.link.b->receives().posted() == 32);
  CHECK(box.link.driver.requests().of(request_kind::receive).posted == 64);
  box.receive(32, 0);  // All of them work.
}

TEST_CASE("a receive waits no longer than the turn in which it was posted", "[transfer][device]") {
  inbox box;
  box.receive(4, 8);
  const bells heard{box.link};
  box.run_in_a_turn([&] { return box.take_and_post(2); });
  CHECK(bells::counts() == std::vector<std::size_t>{2});
  SECTION("and not at all where there is no turn") {
    box.link.b->post_recv(box.to.slice(0, 8));
    CHECK(bells::counts() == std::vector<std::size_t>{2, 1});
  }
}

TEST_CASE("receives that wait go before anything that is posted to send", "[transfer][device]") {
  inbox box;
  box.receive(4, 8);
  const bells heard{box.link};
  queue_pair& a = *box.link.a;
  queue_pair& b = *box.link.b;
  box.run_in_a_turn([&]() -> task<> {
    co_await box.take_and_post(2);
    static_cast<void>(a.post(send(box.from.slice(0, 8))));
    co_await box.take_and_post(2);
  });
  CHECK(bells::all == std::vector<bells::rung>{{b.verbs().native_handle(), true, 2},
                                               {a.verbs().native_handle(), false, 1},
                                               {b.verbs().native_handle(), true, 2}});
}

TEST_CASE("receives that wait go before those of another queue", "[transfer][device]") {
  inbox box;
  queue_pair& a = *box.link.a;
  queue_pair& b = *box.link.b;
  box.receive(4, 8);
  for (int i = 0; i < 8; ++i) a.post_recv(box.to.slice(0, 8));
  for (int i = 0; i < 4; ++i) box.link.run(b.send(box.from.slice(0, 8)));
  box.link.run_until([&] { return a.receives().pending_messages() == 4; });
  const bells heard{box.link};
  box.run_in_a_turn([&]() -> task<> {
    co_await box.take_and_post(2);
    static_cast<void>(co_await a.next_message());
    a.post_recv(box.to.slice(0, 8));
  });
  CHECK(bells::all == std::vector<bells::rung>{{b.verbs().native_handle(), true, 2},
                                               {a.verbs().native_handle(), true, 1}});
}

TEST_CASE("a receive of several slices waits as others do", "[transfer][device]") {
  inbox box{{.capabilities = {.recv_wr_max = 16, .recv_sge_max = 2}}};
  box.receive(4, 8);
  const bells heard{box.link};
  box.run_in_a_turn([&]() -> task<> {
    for (int i = 0; i < 3; ++i) {
      static_cast<void>(co_await box.link.b->next_message());
      if (i == 1) {
        box.link.b->post_recv(scatter(box.to.slice(16, 4), box.to.slice(32, 4)));
      } else {
        box.link.b->post_recv(box.to.slice(0, 8));
      }
    }
  });
  CHECK(bells::counts() == std::vector<std::size_t>{3});
  box.run_in_a_turn([&] { return box.take_and_post(1); });
  // Behind the four that were posted first, and one.
  for (int i = 0; i < 5; ++i) box.link.run(box.link.a->send(box.from.slice(0, 8)));
  std::ranges::fill(box.from.bytes(), std::byte{7});
  box.link.run(box.link.a->send(box.from.slice(0, 8)));
  for (int i = 0; i < 5; ++i) box.link.run(box.link.b->next_message());
  const message got = box.link.run(box.link.b->next_message());
  REQUIRE(got.slices.size() == 2);
  CHECK(got.slices[1].bytes().data() == box.to.slice(32, 4).bytes().data());
  CHECK(got.slices[1].bytes()[3] == std::byte{7});
}

TEST_CASE("where it is switched off, each receive goes at once", "[transfer][device]") {
  inbox box{{.cq = {.doorbell_batching = false}}};
  box.receive(4, 8);
  const bells heard{box.link};
  box.run_in_a_turn([&] { return box.take_and_post(3); });
  CHECK(bells::counts() == std::vector<std::size_t>{1, 1, 1});
}

TEST_CASE("a queue pair whose waiting receives the device refuses has failed, and holds nothing",
          "[transfer][device][C6]") {
  inbox box;
  box.receive(4, 8);
  local_mr own = box.link.memory(64);
  memory_block& block = *own.slice().block();
  {
    const bells heard{box.link};
    bells::refused_from = 1;
    box.run_in_a_turn([&]() -> task<> {
      for (int i = 0; i < 3; ++i) {
        static_cast<void>(co_await box.link.b->next_message());
        box.link.b->post_recv(own.slice(0, 8));
      }
    });
  }
  const std::error_code refusal{ENOMEM, std::system_category()};
  REQUIRE(box.link.b->has_failed());
  CHECK(box.link.b->failure_reason().code == refusal);
  CHECK(box.link.b->failure_reason().call == std::string_view{"ibv_post_recv"});
  CHECK(box.link.driver.requests().of(request_kind::receive).refused == 2);
  box.link.run_until([&] { return box.link.b->slots_in_use() == 0; });
  CHECK(box.link.run(as_result(box.link.b->next_message())).has_value());  // It came before.
  CHECK(box.link.run(as_result(box.link.b->recv(own))).failure().code == refusal);
  CHECK(block.holders() == 1);
}

TEST_CASE("what waits to be sent goes once, whatever becomes of the receives before it",
          "[transfer][device][C6]") {
  inbox box;
  box.receive(4, 8);
  queue_pair& a = *box.link.a;
  queue_pair& b = *box.link.b;
  const local_mr_slice from = box.from.slice(0, 8);
  event told{box.link.home};
  scope tasks{box.link.home};
  std::size_t written = 0;
  const bells heard{box.link};
  tasks.spawn(once_told(
      told, [&]() -> task<> { written = co_await a.write(from, box.to.remote_slice()); }));
  tasks.spawn(once_told(told, [&]() -> task<> {
    // One that nobody is told of, so that B, when it fails, posts another that tells.
    static_cast<void>(b.post(send(from, {.signaled = false})));
    bells::refused_from = 1;
    co_await box.take_and_post(2);
  }));
  tasks.spawn(once_told(told, [&]() -> task<> {
    CHECK_FALSE(b.has_failed());  // Others are in the middle of something.
    co_return;
  }));
  told.set();
  box.link.run(tasks.join());
  CHECK(b.has_failed());
  CHECK_FALSE(a.has_failed());
  CHECK(written == 8);
  const auto is_of_a = [&](const bells::rung& each) {
    return each.qp == a.verbs().native_handle();
  };
  CHECK(std::ranges::count_if(bells::all, is_of_a) == 1);
  box.link.run_until([&] { return b.slots_in_use() == 0; });
}

TEST_CASE("a queue pair that ends takes its waiting receives with it", "[transfer][device][C6]") {
  inbox box;
  box.receive(4, 8);
  const bool is_destroyed = GENERATE(false, true);
  box.run_in_a_turn([&]() -> task<> {
    co_await box.take_and_post(2);
    if (is_destroyed) {
      box.link.b.reset();
    } else {
      box.link.b->abort({.code = errc::disconnected, .call = "test"});
    }
  });
  if (!is_destroyed) box.link.run_until([&] { return box.link.b->slots_in_use() == 0; });
  box.link.b.reset();
  CHECK(box.to.slice().block()->holders() == 1);
}
