#include "queue/receive_queue.hpp"

#include "support/held.hpp"
#include "support/loopback.hpp"
#include "support/outcome.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <vector>

using namespace cordma;
using test::failure_of;
using test::held;
using test::held_by;
using test::loopback;
using test::nothing;

TEST_CASE("a message waits in its buffer until somebody takes it", "[queue][device]") {
  loopback link{{.capabilities = {.recv_wr_max = 8}}};
  std::array<local_mr, 4> buffers;
  for (local_mr& mr : buffers) mr = link.memory(64);
  const auto held = [&] {
    return std::ranges::count_if(
        buffers, [](const local_mr& mr) { return mr.slice().block()->holders() > 1; });
  };
  const local_mr from = link.pattern(64);
  for (local_mr& mr : buffers) link.a->post_recv(mr);
  CHECK(held() == 4);
  for (std::uint32_t i = 0; i < 3; ++i) link.run(link.b->send_with_imm(from.slice(0, 8 + i), i));
  link.run_until([&] { return link.a->receives().pending_messages() == 3; });
  CHECK(link.a->receives().posted() == 1);
  CHECK(held() == 4);  // Messages hold their blocks until they are taken.
  for (std::uint32_t i = 0; i < 3; ++i) {
    const message got = link.run(link.a->next_message());
    CHECK(got.immediate == i);
    CHECK(got.size_bytes == 8 + i);
    CHECK(got.slices[0].bytes().data() == buffers[i].bytes().data());
    CHECK(held() == 3 - i);
  }
}

TEST_CASE("a receive buffer that cannot work is refused", "[queue][device][M10]") {
  loopback link{{.capabilities = {.recv_wr_max = 4}}};
  local_mr mr = link.memory(64);
  local_mr freed = link.memory(64);
  const local_mr_slice stale = freed.slice();
  freed.reset();
  CHECK(failure_of([&] { link.a->post_recv(stale); }).code == errc::stale_slice);
  CHECK(failure_of([&] { link.a->post_recv(scatter(mr, stale)); }).code == errc::stale_slice);
  verbs::protection_domain other_pd{link.ctx};
  mr_allocator other_memory{other_pd};
  local_mr other = other_memory.allocate_zeroed(64);
  CHECK(failure_of([&] { link.a->post_recv(other); }).code == errc::wrong_protection_domain);
  const std::vector<local_mr_slice> many(64, mr.slice(0, 1));
  CHECK(failure_of([&] { link.a->post_recv(many); }).code == errc::too_many_slices);
  const auto outcome = link.outcome(link.a->recv(stale));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == errc::stale_slice);
  CHECK(held_by(*link.a, mr) == nothing);

  for (std::uint32_t i = 0; i < link.a->receives().depth(); ++i) link.a->post_recv(mr);
  CHECK(failure_of([&] { link.a->post_recv(mr); }).code == errc::receive_queue_full);
}

TEST_CASE("a message that nobody took before a handler came can still be taken",
          "[queue][device]") {
  struct : message_handler {
    void on_receive(std::uint32_t, const ibv_wc&) noexcept override {}
    bool on_room() noexcept override { return false; }
    void on_idle_awaited() noexcept override {}
    void on_failure() noexcept override {}
    void on_gone() noexcept override {}
  } handler;
  loopback link;
  local_mr mr = link.memory(64);
  memory_block& block = *mr.slice().block();
  const local_mr from = link.pattern(16);
  for (int n = 0; n < 2; ++n) link.a->post_recv(mr);
  for (int n = 0; n < 2; ++n) link.run(link.b->send(from));
  link.run_until([&] { return link.a->receives().pending_messages() == 2; });
  link.a->hand_messages_to(handler);
  CHECK(link.run(link.a->next_message()).size_bytes == 16);
  CHECK(held_by(block) == held{.block_uses = 1});
  link.a.reset();  // The other one goes with its queue pair.
  CHECK(held_by(block) == nothing);
}

TEST_CASE("messages that came before a failure can still be taken", "[queue][device][C7]") {
  loopback link;
  local_mr mr = link.memory(64);
  const local_mr from = link.pattern(16);
  link.a->post_recv(mr);
  link.a->post_recv(mr);
  link.run(link.b->send(from));
  link.run_until([&] { return link.a->receives().pending_messages() == 1; });
  link.a->abort({.code = errc::disconnected, .call = "test"});
  CHECK(link.run(link.a->next_message()).size_bytes == 16);
  CHECK(link.outcome(link.a->next_message()).failure().code == errc::disconnected);
  CHECK(link.outcome(link.a->recv(mr)).failure().code == errc::disconnected);
}
