// Messages that are longer than a buffer: lent by one end, read by the other.
#include <cordma/messages/message_stream.hpp>

#include <cordma/base/unique_fd.hpp>

#include <support/allocations.hpp>
#include <support/device.hpp>
#include <support/skip.hpp>
#include <support/stream_pair.hpp>

#include <catch2/catch.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

using namespace cordma;
using namespace test::streams;

TEST_CASE("a message of 1 GiB arrives whole", "[messages][device]") {
  constexpr size_t most = size_t{1} << 30, part = size_t{32} << 10;
  if (!support::counts_allocations()) CORDMA_SKIP("a sanitizer would take minutes over it");
  if (size_t(::sysconf(_SC_PHYS_PAGES)) * size_t(::sysconf(_SC_PAGESIZE)) < 4 * most)
    CORDMA_SKIP("less than 4 GiB of memory");
  stream_pair p{{}, {.message_bytes_max = most}};
  local_mr memory = p.rt.memory().allocate_uninitialized(most);
  // A number in each part: no two are alike, none is like memory that nobody wrote, and few pages
  // are touched.
  for (size_t number = 0; number < most / part; ++number) {
    const size_t said = number + 1;
    std::memcpy(&memory.bytes()[number * part + number / 8 * 8 % part], &said, sizeof said);
  }
  p.rt.run(pass_memory(p.a, p.b, memory.slice()));
  CHECK(p.b.counters().large_received == 1);
}

TEST_CASE("constants and cached memory are sent, long or short, and dma-bufs where there are some",
          "[messages][device][M11][M12]") {
  stream_pair p;
  mr_allocator& memory = p.rt.memory();
  const std::vector<std::byte> constant = seeded_bytes(100'000, 1);
  std::vector<std::byte> bytes = seeded_bytes(100'000, 2);
  const const_local_mr text = memory.register_external(constant);
  const local_mr cached = memory.register_cached(bytes);
  for (const size_t size : {size_t{1}, size_t{1000}, constant.size()}) {
    p.rt.run(pass_memory(p.a, p.b, text.first(size)));
    p.rt.run(pass_memory(p.a, p.b, cached.first(size)));
  }
  CHECK(p.b.counters().large_received == 2);
  if (!test::is_soft()) return;  // rxe registers none.
  const unique_fd file{::memfd_create("cordma test", MFD_CLOEXEC)};
  REQUIRE(::ftruncate(file.get(), 100'000) == 0);
  local_mr buffer = memory.register_dmabuf(file.get(), 0, 100'000);
  std::ranges::copy(bytes, buffer.bytes().begin());
  for (const size_t size : {size_t{1}, size_t{1000}, bytes.size()})
    p.rt.run(pass_memory(p.a, p.b, buffer.first(size)));
  // A message of memory that has gone fails alone: the stream goes on.
  REQUIRE(::ftruncate(file.get(), 0) == 0);
  for (const size_t size : {size_t{1}, size_t{1000}, bytes.size()}) {
    const auto sent = p.rt.run(as_result(p.a.send(buffer.first(size))));
    CHECK(code_of(sent) == std::errc::bad_address);
  }
  p.rt.run(pass_memory(p.a, p.b, cached.first(1000)));
}

TEST_CASE("a large message of read-only pages is lent by a registration of its own",
          "[messages][device][M11]") {
  connection_options options = test::never_not_ready();
  options.agent.lending.isolation_max = isolation::exact_registered;
  test::connected_pair p{{}, options, options};
  message_stream a{std::move(p.client)}, b{std::move(p.server)};
  constexpr size_t size = 100'000;
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(at != MAP_FAILED);
  const std::span<const std::byte> pages{static_cast<const std::byte*>(at), size};
  {
    const const_local_mr memory = p.rt.memory().register_external(pages);
    p.rt.run(pass_memory(a, b, memory.first(1)));
    if (test::is_soft())
      p.rt.run(pass_memory(a, b, memory));
    else  // The kernel binds no window to pages that may not be written.
      CHECK(code_of(p.rt.run(as_result(a.send(memory)))) == std::errc::bad_address);
    p.rt.run(pass_memory(a, b, memory.first(1)));
  }
  CHECK(b.counters().large_received == (test::is_soft() ? 1 : 0));
  CHECK(::munmap(at, size) == 0);
}

namespace {

/// Stops large messages at every step that there is, then passes one.
task<> stop_large_sends(stream_pair& p, const std::vector<std::byte>& bytes, unsigned& arrived) {
  for (unsigned steps = 0; steps < 40; ++steps) {
    scope sending{p.rt.executor()};
    sending.spawn(p.a.send(bytes));
    for (unsigned iterate = 0; iterate < steps; ++iterate) co_await test::due_timers_fired();
    sending.request_stop();
    co_await sending.join();
    // The next message tells whether the large one arrived.
    co_await p.a.send(bytes_of("next"));
    stream_message m = co_await p.b.receive();
    if (m.is_large()) {
      ++arrived;
      CHECK(std::ranges::equal(m.bytes(), bytes));
      m = co_await p.b.receive();
    }
    CHECK(text_of(m.bytes()) == "next");
  }
  co_await test::until(p.rt.executor(), [&] { return p.a.connection().lending().open == 0; });
}

}  // namespace

TEST_CASE("a large message that is stopped at any step arrives whole or not at all",
          "[messages][device]") {
  stream_pair p{smallest, smallest};
  const auto bytes = seeded_bytes(large_bytes, 3);
  unsigned arrived = 0;
  p.rt.run(stop_large_sends(p, bytes, arrived));
  CHECK(arrived > 0);
  CHECK(arrived < 40);
  CHECK(p.a.connection().leases().empty());
  CHECK(p.b.connection().leases().empty());
  p.rt.run(pass(p.a, p.b, bytes));
}

namespace {

task<> send_sizes(message_stream& s, unsigned count) {
  for (unsigned n = 0; n < count; ++n)
    co_await s.send(seeded_bytes(n % 5 == 0 ? large_bytes + n : n, n));
}
task<> receive_sizes(message_stream& s, unsigned count) {
  for (unsigned n = 0; n < count; ++n) {
    const stream_message m = co_await s.receive();
    CHECK(std::ranges::equal(m.bytes(), seeded_bytes(n % 5 == 0 ? large_bytes + n : n, n)));
    CHECK(m.is_large() == (n % 5 == 0));
  }
}
task<> send_at_once(stream_pair& p, unsigned count) {
  std::vector<std::vector<std::byte>> all;
  for (unsigned n = 0; n < count; ++n) all.push_back(seeded_bytes(large_bytes + n, n));
  scope sending{p.rt.executor()};
  for (const auto& bytes : all) sending.spawn(p.a.send(bytes));
  for (const auto& bytes : all) {
    const stream_message m = co_await p.b.receive();
    CHECK(std::ranges::equal(m.bytes(), bytes));
  }
  co_await sending.join();
}

}  // namespace

TEST_CASE("large and small messages keep their order", "[messages][device]") {
  stream_pair p{smallest, smallest};
  p.rt.run(when_all(send_sizes(p.a, 40), receive_sizes(p.b, 40), send_sizes(p.b, 40),
                    receive_sizes(p.a, 40)));
  p.rt.run(send_at_once(p, 20));
  CHECK(p.b.counters().large_received == 28);
}

TEST_CASE("no more large messages are fetched ahead than the options say", "[messages][device]") {
  stream_options few = smallest;
  few.large_ahead = 1;
  stream_pair pair{few, few};
  const auto all = seeded_bytes(large_bytes, 1);
  pair.rt.run([](stream_pair& p, const std::vector<std::byte>& bytes) -> task<> {
    scope sending{p.rt.executor()};
    for (int n = 0; n < 3; ++n) sending.spawn(p.a.send(bytes));
    co_await test::until(p.rt.executor(), [&] { return p.b.counters().large_received == 1; });
    co_await p.a.connection().write(const_local_mr_slice{}, {});
    CHECK(p.b.counters().large_received == 1);
    for (int n = 0; n < 3; ++n) static_cast<void>(co_await p.b.receive());
    co_await sending.join();
  }(pair, all));
}

TEST_CASE("a large message takes three completions, four where no message can end a loan",
          "[messages][device]") {
  constexpr stream_options roomy{.buffer_bytes = 64};
  stream_pair pair{roomy, roomy};
  const auto all = seeded_bytes(large_bytes, 1);
  pair.rt.run([](stream_pair& p, const std::vector<std::byte>& bytes) -> task<> {
    const completion_queue_driver& driver = p.a.connection().qp().driver();
    const auto invalidated = [&] {
      return driver.requests().of(request_kind::invalidate).completed;
    };
    isolation isolated = isolation::shared_key;
    {
      scope sending{p.rt.executor()};
      sending.spawn(p.a.send(bytes));
      const connection& lending = p.a.connection();
      co_await test::until(p.rt.executor(), [&] { return !lending.leases().empty(); });
      isolated = lending.leases().front().isolation;
      static_cast<void>(co_await p.b.receive());
      co_await sending.join();
    }
    const auto invalidated_before = invalidated();
    const auto before = driver.counters().completions;
    constexpr unsigned messages = 8;
    for (unsigned n = 0; n < messages; ++n) co_await pass(p.a, p.b, bytes);
    const auto by_itself = invalidated() - invalidated_before;
    CHECK(by_itself == (isolated == isolation::exact ? 0 : messages));
    // The announcement, the READ, that it is taken; of sixteen frames of a side one ends them all.
    CHECK(driver.counters().completions - before <= 3 * messages + by_itself + 2);
  }(pair, all));
}

TEST_CASE("a message that is longer than the peer takes is refused with both numbers",
          "[messages][device][P4]") {
  stream_options takes_little = smallest;
  takes_little.message_bytes_max = 2000;
  stream_pair pair{smallest, takes_little};
  const auto all = seeded_bytes(2001, 1);
  pair.rt.run([](stream_pair& p, std::span<const std::byte> bytes) -> task<> {
    const auto sent = co_await as_result(p.a.send(bytes));
    REQUIRE(code_of(sent) == errc::wrong_length);
    CHECK(sent.failure().detail.view() == "2001 bytes, the peer takes messages of up to 2000");
    co_await pass(p.a, p.b, bytes.first(2000));
    co_await pass(p.b, p.a, bytes);
  }(pair, all));
}

TEST_CASE("a large message that the receiver has no memory for is refused, and the next is not",
          "[messages][device]") {
  constexpr size_t mib = size_t{1} << 20;
  runtime_options tight;
  tight.memory = {.chunk_bytes = 2 * mib, .limit_bytes = 16 * mib};
  stream_pair pair{smallest, smallest, std::move(tight)};
  local_mr owned = pair.rt.memory().allocate_zeroed(8 * mib);
  pair.rt.run([](stream_pair& p, local_mr_slice memory) -> task<> {
    const auto sent = co_await as_result(p.a.send(memory));
    CHECK(code_of(sent) == errc::refused);
    co_await pass_memory(p.a, p.b, memory.first(mib));
  }(pair, owned.slice()));
}

TEST_CASE("memory that its owner frees while it is sent stays until the peer has it",
          "[messages][device]") {
  stream_pair pair{smallest, smallest};
  const auto all = seeded_bytes(large_bytes, 5);
  pair.rt.run([](stream_pair& p, std::span<const std::byte> bytes) -> task<> {
    local_mr memory = p.rt.memory().allocate_uninitialized(bytes.size());
    std::ranges::copy(bytes, memory.bytes().begin());
    const local_mr_slice freed = memory.slice();
    scope sending{p.rt.executor()};
    sending.spawn(p.a.send(memory.slice()));
    co_await test::until(p.rt.executor(), [&] { return p.a.connection().lending().open == 1; });
    memory.reset();
    const stream_message m = co_await p.b.receive();
    CHECK(std::ranges::equal(m.bytes(), bytes));
    co_await sending.join();
    const auto again = co_await as_result(p.a.send(freed));
    CHECK(code_of(again) == errc::stale_slice);
  }(pair, all));
}

TEST_CASE("memory that its owner frees before the peer has room for it is sent all the same",
          "[messages][device]") {
  stream_pair pair{smallest, smallest};
  const auto all = seeded_bytes(large_bytes, 6);
  pair.rt.run([](stream_pair& p, std::span<const std::byte> bytes) -> task<> {
    local_mr memory = p.rt.memory().allocate_uninitialized(bytes.size());
    std::ranges::copy(bytes, memory.bytes().begin());
    scope sending{p.rt.executor()};
    sending.spawn(p.a.send(memory.slice()));
    // In the same turn: it is announced, and not lent yet.
    sending.spawn([](local_mr& sent, const connection& by) -> task<> {
      CHECK(by.lending().open == 0);
      sent.reset();
      co_return;
    }(memory, p.a.connection()));
    const stream_message m = co_await p.b.receive();
    CHECK(std::ranges::equal(m.bytes(), bytes));
    co_await sending.join();
  }(pair, all));
}
