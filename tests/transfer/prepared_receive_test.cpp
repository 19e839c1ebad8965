#include <cordma/detail/transfer/prepared_receive.hpp>

#include "support/aborts.hpp"
#include "support/loopback.hpp"
#include "support/outcome.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/scope.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

using namespace cordma;
using test::failure_of;
using test::loopback;

namespace {

std::unique_ptr<prepared_receive> on_heap(queue_pair& qp, const local_mr_slice& buffer) {
  return std::unique_ptr<prepared_receive>{new auto(qp.prepare_recv(buffer))};
}

/// That many messages have come, and nobody has taken one.
void send(loopback& link, const local_mr& from, std::uint32_t messages = 1) {
  const std::uint32_t before = link.a->receives().pending_messages();
  for (std::uint32_t i = 0; i < messages; ++i) link.run(link.b->send(from));
  link.run_until([&] { return link.a->receives().pending_messages() == before + messages; });
}

}  // namespace

TEST_CASE("a prepared buffer is posted time and again, beside others, and gets its messages",
          "[transfer][device]") {
  loopback link{{.capabilities = {.recv_wr_max = 8}}};
  local_mr to = link.memory(64);
  local_mr other = link.memory(64);
  local_mr from = link.memory(64);
  auto buffer = link.a->prepare_recv(to);
  const auto take = [&](const local_mr& its, std::size_t n) {
    const message got = link.run(link.a->next_message());
    REQUIRE(got.slices.size() == 1);
    REQUIRE(got.slices[0].bytes().data() == its.bytes().data());
    REQUIRE(got.payload().size_bytes() == 64);
    REQUIRE(got.payload().bytes()[0] == std::byte(n));
  };
  for (std::size_t n = 0; n < 300; n += 2) {  // Passes the wrap of the sequence numbers.
    buffer.post();
    link.a->post_recv(other);
    from.bytes()[0] = std::byte(n);
    send(link, from);
    from.bytes()[0] = std::byte(n + 1);
    send(link, from);
    take(to, n);
    take(other, n + 1);
  }
  CHECK(link.driver.requests().of(request_kind::receive).completed == 300);
}

TEST_CASE("a buffer of several slices is prepared as one of one is, and one of none for WRITEs",
          "[transfer][device]") {
  loopback link{{.capabilities = {.recv_wr_max = 4, .recv_sge_max = 2}}};
  local_mr to = link.memory(64);
  const local_mr from = link.pattern(32);
  auto several = link.a->prepare_recv(scatter(to.slice(0, 8), to.slice(32, 24)));
  auto none = link.a->prepare_recv(std::span<const local_mr_slice>{});
  for (int i = 0; i < 3; ++i) {
    several.post();
    none.post();
    send(link, from);
    const message got = link.run(link.a->next_message());
    REQUIRE(got.slices.size() == 2);
    CHECK(got.size_bytes == 32);
    CHECK(test::same_bytes(got.slices[0].bytes(), from.bytes().first(8)));
    CHECK(test::same_bytes(got.slices[1].bytes(), from.bytes().subspan(8)));
    link.run(link.b->write_with_imm(from, to.remote_slice().first(32), 7));
    const message written = link.run(link.a->next_message());
    CHECK(written.is_write);
    CHECK(written.immediate == 7);
    CHECK(written.slices.empty());
  }
}

TEST_CASE("a prepared buffer holds its memory, and what is posted of it holds it beyond that",
          "[transfer][device][C1]") {
  loopback link{{.capabilities = {.recv_wr_max = 8, .recv_sge_max = 2}}};
  std::optional<local_mr> to = link.memory(64);
  const bool are_two = GENERATE(false, true);
  const local_mr from = link.pattern(8);
  memory_block& block = *to->slice().block();
  const auto prepare = [&] {
    return are_two ? link.a->prepare_recv(scatter(to->slice(0, 8), to->slice(8, 8)))
                   : link.a->prepare_recv(*to);
  };
  auto buffer = std::unique_ptr<prepared_receive>{new auto(prepare())};
  CHECK(block.holders() == 2);
  for (int i = 0; i < 3; ++i) buffer->post();
  send(link, from, 2);
  CHECK(link.run(link.a->next_message()).size_bytes == 8);
  to.reset();
  CHECK(block.holders() == 1);
  buffer.reset();  // One message nobody took, and one buffer with the device.
  CHECK(block.holders() == 1);
  const message got = link.run(link.a->next_message());
  CHECK(got.slices.size() == (are_two ? 2 : 1));
  CHECK(test::same_bytes(got.payload().bytes(), from.bytes()));
  CHECK(block.holders() == 1);
  SECTION("until its message is taken") {
    send(link, from);
    CHECK(block.holders() == 1);
    CHECK(link.run(link.a->next_message()).size_bytes == 8);
    CHECK(block.holders() == 0);
  }
  SECTION("until the device gives it back") {
    link.a->abort({.code = errc::disconnected, .call = "test"});
    link.run_until([&] { return link.a->slots_in_use() == 0; });
    CHECK(block.holders() == 0);
  }
  SECTION("or its queue pair is gone") {
    link.a.reset();
    CHECK(block.holders() == 0);
  }
}

TEST_CASE("what came back without a message holds nothing, though its prepared buffer is there",
          "[transfer][device][C6]") {
  loopback link;
  local_mr to = link.memory(64);
  auto buffer = on_heap(*link.a, to);
  buffer->post();
  buffer->post();
  link.a->abort({.code = errc::disconnected, .call = "test"});
  link.run_until([&] { return link.a->slots_in_use() == 0; });
  CHECK(failure_of([&] { buffer->post(); }).code == errc::disconnected);
  buffer.reset();
  CHECK(to.slice().block()->holders() == 1);
}

TEST_CASE("of many prepared buffers each finds what names it, in whichever order they go",
          "[transfer][device][C1]") {
  loopback link{{.capabilities = {.recv_wr_max = 16}}};
  const std::uint32_t depth = link.a->receives().depth();
  std::vector<local_mr> memory(depth);
  std::vector<std::unique_ptr<prepared_receive>> buffers;
  const local_mr from = link.pattern(8);
  for (local_mr& mr : memory) {
    mr = link.memory(64);
    buffers.push_back(on_heap(*link.a, mr));
  }
  const auto post_some = [&](std::uint32_t n) {
    for (std::uint32_t i = 0; i < n; ++i) buffers[i % 3]->post();
  };
  post_some(depth / 2);
  send(link, from, depth / 2);
  post_some(depth - depth / 2);
  for (std::uint32_t i = 0; i < depth / 4; ++i) link.run(link.a->next_message());
  link.a->abort({.code = errc::disconnected, .call = "test"});
  link.run_until([&] { return link.a->slots_in_use() == 0; });
  const std::uint32_t messages = link.a->receives().pending_messages();
  const auto held = [&] {
    return std::ranges::count_if(
        memory, [](const local_mr& mr) { return mr.slice().block()->holders() > 1; });
  };
  const bool is_first_first = GENERATE(true, false);
  while (!buffers.empty()) {
    buffers.erase(is_first_first ? buffers.begin() : buffers.end() - 1);
  }
  CHECK(messages >= 3);
  CHECK(held() == 3);
  for (std::uint32_t i = 0; i < messages; ++i) link.run(link.a->next_message());
  CHECK(held() == 0);
}

TEST_CASE("a receive buffer that cannot work is refused where it is prepared",
          "[transfer][device][M10]") {
  loopback link{{.capabilities = {.recv_wr_max = 4}}};
  local_mr mr = link.memory(64);
  local_mr freed = link.memory(64);
  const local_mr_slice stale = freed.slice();
  freed.reset();
  CHECK(failure_of([&] { static_cast<void>(link.a->prepare_recv(stale)); }).code ==
        errc::stale_slice);
  CHECK(failure_of([&] { static_cast<void>(link.a->prepare_recv(scatter(mr, stale))); }).code ==
        errc::stale_slice);
  verbs::protection_domain other_pd{link.ctx};
  mr_allocator other_memory{other_pd};
  local_mr other = other_memory.allocate_zeroed(64);
  CHECK(failure_of([&] { static_cast<void>(link.a->prepare_recv(other)); }).code ==
        errc::wrong_protection_domain);
  const std::vector<local_mr_slice> many(64, mr.slice(0, 1));
  CHECK(failure_of([&] { static_cast<void>(link.a->prepare_recv(many)); }).code ==
        errc::too_many_slices);
  CHECK(mr.slice().block()->holders() == 1);

  auto buffer = link.a->prepare_recv(mr);
  for (std::uint32_t i = 0; i < link.a->receives().depth(); ++i) buffer.post();
  CHECK(failure_of([&] { buffer.post(); }).code == errc::receive_queue_full);
  link.a->abort({.code = errc::disconnected, .call = "test"});
  CHECK(failure_of([&] { buffer.post(); }).code == errc::disconnected);
  CHECK(failure_of([&] { static_cast<void>(link.a->prepare_recv(mr)); }).code ==
        errc::disconnected);
}

TEST_CASE("prepared buffers wait for one doorbell with others", "[transfer][device]") {
  loopback link{{.capabilities = {.recv_wr_max = 16, .recv_sge_max = 2}}};
  local_mr to = link.memory(64);
  local_mr own = link.memory(64);
  const local_mr from = link.pattern(16);
  auto one = link.a->prepare_recv(to.slice(0, 16));
  auto two = link.a->prepare_recv(scatter(to.slice(16, 8), to.slice(32, 8)));
  auto gone = on_heap(*link.a, own);
  for (int i = 0; i < 8; ++i) one.post();
  send(link, from, 4);
  event told{link.home};
  scope tasks{link.home};
  const auto go_through = [&]() -> task<> {
    co_await told.wait();
    const std::uint32_t with_device = link.a->receives().posted();
    const auto posted = [&] { return link.driver.requests().of(request_kind::receive).posted; };
    const std::uint64_t before = posted();
    for (int i = 0; i < 3; ++i) {
      static_cast<void>(co_await link.a->next_message());
      if (i == 0) one.post();
      if (i == 1) two.post();
      if (i == 2) std::exchange(gone, nullptr)->post();  // It goes before the doorbell.
    }
    CHECK(posted() == before);
    CHECK(link.a->receives().posted() == with_device + 3);
  };
  tasks.spawn(go_through());
  told.set();
  link.run(tasks.join());
  CHECK(own.slice().block()->holders() == 2);
  send(link, from, 7);
  std::vector<std::byte*> where;
  for (int i = 0; i < 8; ++i) {
    const message got = link.run(link.a->next_message());
    for (const local_mr_slice& slice : got.slices) where.push_back(slice.bytes().data());
  }
  CHECK(where == std::vector<std::byte*>{&to.bytes()[0], &to.bytes()[0], &to.bytes()[0],
                                         &to.bytes()[0], &to.bytes()[0], &to.bytes()[0],
                                         &to.bytes()[16], &to.bytes()[32], &own.bytes()[0]});
  CHECK(own.slice().block()->holders() == 1);
}

TEST_CASE("a prepared buffer that the device refuses is not posted, and may be later",
          "[transfer][device][C6]") {
  loopback link;
  local_mr to = link.memory(64);
  const local_mr from = link.pattern(16);
  auto buffer = link.a->prepare_recv(to);
  ibv_context_ops& ops = link.ctx.native_handle()->ops;
  const auto real = std::exchange(ops.post_recv, [](ibv_qp*, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    *bad = wr;
    return ENOMEM;
  });
  const std::error_code refused = failure_of([&] { buffer.post(); }).code;
  ops.post_recv = real;
  CHECK(refused == std::error_code{ENOMEM, std::system_category()});
  CHECK(link.a->slots_in_use() == 0);
  CHECK(link.driver.requests().of(request_kind::receive).refused == 1);
  buffer.post();
  send(link, from);
  CHECK(link.run(link.a->next_message()).size_bytes == 16);
}

TEST_CASE("a prepared buffer whose queue pair is gone has no memory, cannot be posted, and says so",
          "[transfer][device]") {
  const support::death gone = support::run_in_child([] {
    loopback link;
    local_mr to = link.memory(64);
    auto buffer = link.a->prepare_recv(to);
    buffer.post();
    link.a.reset();
    if (to.slice().block()->holders() == 1) buffer.post();
  });
  CHECK(gone.aborted);
  CHECK_THAT(gone.text, Catch::Contains("the queue pair of what was prepared"));
}
