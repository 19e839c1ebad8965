#include "queue/message_handler.hpp"

#include "request/queue_pair.hpp"
#include "support/detached.hpp"
#include "support/held.hpp"
#include "support/loopback.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cstdint>
#include <vector>

using namespace cordma;
using test::held;
using test::held_by;
using test::loopback;
using test::nothing;
using test::post_detached;
using test::same_bytes;

namespace {

/// Receives into a row of buffers, and notes what it is told.
class noting_handler final : public message_handler {
 public:
  static constexpr std::uint32_t buffer_bytes = 64;
  explicit noting_handler(loopback& link, std::uint32_t buffers)
      : memory{link.memory(buffers * buffer_bytes)}, qp_{*link.a} {}

  void post(std::uint32_t number) {
    ibv_sge piece{
        .addr = reinterpret_cast<std::uint64_t>(memory.bytes().data() + number * buffer_bytes),
        .length = buffer_bytes,
        .lkey = memory.slice().lkey()};
    ibv_recv_wr wr{.wr_id = number, .next = nullptr, .sg_list = &piece, .num_sge = 1};
    qp_.post_recvs({&wr, 1});
  }

  local_mr memory;
  std::vector<std::uint32_t> received;  ///< the numbers of those that succeeded
  unsigned flushed = 0;
  unsigned rooms = 0;
  unsigned idles = 0;
  unsigned failures = 0;
  unsigned gone = 0;

 private:
  void on_receive(std::uint32_t number, const ibv_wc& wc) noexcept override {
    if (wc.status == IBV_WC_SUCCESS)
      received.push_back(number);
    else
      ++flushed;
  }
  bool on_room() noexcept override {
    ++rooms;
    return false;
  }
  void on_idle_awaited() noexcept override { ++idles; }
  void on_failure() noexcept override { ++failures; }
  void on_gone() noexcept override { ++gone; }

  queue_pair& qp_;
};

}  // namespace

TEST_CASE("a handler gets the receives that it posts, by its numbers", "[queue][device]") {
  loopback link;
  noting_handler handler{link, 3};
  link.a->hand_messages_to(handler);
  for (const std::uint32_t n : {2u, 0u, 1u}) handler.post(n);
  CHECK(held_by(*link.a) == held{.slots = 3});
  const local_mr from = link.pattern(64);
  for (int n = 0; n < 2; ++n) link.run(link.b->send(from.slice()));
  link.run_until([&] { return handler.received.size() == 2; });
  CHECK(handler.received == std::vector<std::uint32_t>{2, 0});
  CHECK(same_bytes(handler.memory.bytes().first(64), from.bytes()));
  CHECK(held_by(*link.a) == held{.slots = 1});
  // Other receivers get no message.
  const auto taken = link.outcome(link.a->next_message());
  REQUIRE(taken.has_failure());
  CHECK(taken.failure().code == errc::refused);
  // Other senders cannot send a message: the peer's receives are counted.
  const auto sent = link.outcome(link.a->send(from.slice()));
  REQUIRE(sent.has_failure());
  CHECK(sent.failure().code == errc::refused);

  link.a->abort({.code = errc::closed, .call = "test"});
  CHECK(handler.failures == 1);
  link.run_until([&] { return handler.flushed == 1; });
  CHECK(held_by(*link.a) == nothing);
  CHECK(handler.gone == 0);
  link.a.reset();
  CHECK(handler.gone == 1);
  CHECK(handler.failures == 1);
}

TEST_CASE("what is sent alone holds its memory until the device has sent it", "[queue][device]") {
  loopback link;
  noting_handler handler{link, 1};
  link.a->hand_messages_to(handler);
  local_mr to = link.memory(64);
  local_mr from = link.pattern(64);
  // References to one block are counted together: each slot shows by a block of its own.
  const std::array<local_mr, 2> others{link.memory(64), link.memory(64)};
  for (int n = 0; n < 3; ++n) link.b->post_recv(to);
  constexpr request_flags unsignaled{.signaled = false};
  REQUIRE(post_detached(*link.a, send(others[0], unsignaled)));
  REQUIRE(post_detached(*link.a, send(others[1], unsignaled)));
  REQUIRE(post_detached(*link.a, send(from)));
  CHECK(held_by(others[0], others[1], from) == held{.block_uses = 3});
  link.run_until([&] { return handler.rooms > 0; });
  CHECK(held_by(others[0], others[1], from) == nothing);
  CHECK(link.a->sends().is_idle());
  CHECK(same_bytes(to.bytes(), from.bytes()));
  link.a.reset();  // The queue pair goes before its handler.
}

TEST_CASE("what is sent alone neither overtakes what waits for room nor fills the queue for ever",
          "[queue][device]") {
  loopback link{{.capabilities = {.send_wr_max = 8, .recv_wr_max = 128}}};
  noting_handler handler{link, 1};
  link.a->hand_messages_to(handler);
  local_mr to = link.memory(8);
  const local_mr theirs = link.memory(8);
  for (int n = 0; n < 128; ++n) link.b->post_recv(to);
  std::array<std::byte, 8> bytes{};
  const auto request = send(test::unregistered(bytes), {.signaled = false});
  unsigned sent = 0;
  while (sent < 100) {
    if (post_detached(*link.a, request)) {
      ++sent;
      continue;
    }
    // Full: none asked for a completion entry, and there is one all the same.
    CHECK(link.a->sends().awaits_completion());
    const unsigned before = handler.rooms;
    auto waits = link.a->post(write(to.slice(), theirs.remote_slice()));
    CHECK_FALSE(post_detached(*link.a, request));
    link.run_until([&] { return handler.rooms > before && waits.has_ended(); });
  }
  link.run_until([&] { return link.b->receives().pending_messages() >= sent; });
  link.a.reset();
}
