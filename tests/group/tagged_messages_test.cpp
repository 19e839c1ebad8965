#include "group/tagged_messages.hpp"

#include "ranks.hpp"
#include "support/outcome.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <cstring>
#include <optional>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::code_of;
using test::expect;
using test::ranks;

namespace {

local_mr memory_of(group& g, std::size_t size, unsigned char value = 0) {
  local_mr memory = g.runtime().memory().allocate_zeroed(size);
  std::memset(memory.bytes().data(), value, size);
  return memory;
}

bool is_all(const local_mr& memory, std::size_t size, unsigned char value) {
  for (std::size_t i = 0; i < size; ++i)
    if (memory.bytes()[i] != std::byte{value}) return false;
  return true;
}

}  // namespace

TEST_CASE("a message reaches the rank and the tag that it is for, of any length",
          "[group][device]") {
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{8192}, std::size_t{8193}, std::size_t{3'000'000}}) {
    ranks all{3};
    const std::string wrong = all.run([size](group& g) -> task<> {
      local_mr out = memory_of(g, size, static_cast<unsigned char>(g.rank() + 1));
      local_mr in = memory_of(g, size + 1);
      const unsigned next = (g.rank() + 1) % 3;
      const unsigned last = (g.rank() + 2) % 3;
      const auto [ignored, got] =
          co_await when_all(g.send(out.slice(), next, 40 + next), g.receive(in.slice(), last));
      expect(got.from == last && got.tag == 40 + g.rank() && got.size_bytes == size, "its head");
      expect(is_all(in, size, static_cast<unsigned char>(last + 1)), "its bytes");
      expect(in.bytes()[size] == std::byte{0}, "a byte beyond");
    });
    CHECK(wrong == "");
  }
}

TEST_CASE("receives choose by tag and sender, whatever came first", "[group][device]") {
  ranks all{3};
  const std::string wrong = all.run([](group& g) -> task<> {
    if (g.rank() != 0) {
      local_mr a = memory_of(g, 10, static_cast<unsigned char>(10 * g.rank()));
      local_mr b = memory_of(g, 10, static_cast<unsigned char>(10 * g.rank() + 1));
      co_await g.send(a.slice(), 0, 1);
      co_await g.send(b.slice(), 0, 2);
      co_await g.barrier();
      co_return;
    }
    co_await g.barrier();
    local_mr in = memory_of(g, 10);
    co_await g.receive(in.slice(), 2, 2);
    expect(is_all(in, 10, 21), "rank 2, tag 2");
    co_await g.receive(in.slice(), {}, 2);
    expect(is_all(in, 10, 11), "any rank, tag 2");
    co_await g.receive(in.slice(), 1);
    expect(is_all(in, 10, 10), "rank 1, any tag");
    expect((co_await g.receive(in.slice())).from == 2, "any rank, any tag");
  });
  CHECK(wrong == "");
}

TEST_CASE("messages of one sender and tag come in the order in which they were sent",
          "[group][device]") {
  ranks all{2};
  const std::string wrong = all.run([](group& g) -> task<> {
    constexpr unsigned count = 200;
    local_mr memory = memory_of(g, 20'000);
    for (unsigned i = 0; i < count; ++i) {
      const std::size_t size = i % 3 == 0 ? 20'000 : 4;
      if (g.rank() == 0) {
        std::memcpy(memory.bytes().data(), &i, sizeof i);
        co_await g.send(memory.first(size), 1);
      } else {
        const auto got = co_await g.receive(memory.slice());
        unsigned number = 0;
        std::memcpy(&number, memory.bytes().data(), sizeof number);
        expect(number == i && got.size_bytes == size, "the order");
      }
    }
  });
  CHECK(wrong == "");
}

TEST_CASE("more messages than a window wait for nobody but their receives", "[group][device]") {
  ranks all{2};
  const std::string wrong = all.run([](group& g) -> task<> {
    constexpr unsigned count = 100;
    if (g.rank() == 0) {
      local_mr small = memory_of(g, 8, 3);
      local_mr last = memory_of(g, 8, 9);
      co_await with_scope([&](scope& sending) -> task<> {
        for (unsigned i = 0; i < count; ++i) sending.spawn(g.send(small.slice(), 1, 1));
        co_await g.send(last.slice(), 1, 2);
      });
      co_return;
    }
    local_mr in = memory_of(g, 8);
    co_await g.receive(in.slice(), 0, 2);  // Behind all the others.
    expect(is_all(in, 8, 9), "the last");
    for (unsigned i = 0; i < count; ++i) co_await g.receive(in.slice(), 0, 1);
    expect(is_all(in, 8, 3), "the first ones");
  });
  CHECK(wrong == "");
}

TEST_CASE("a message to oneself, and an empty one, are messages", "[group][device]") {
  ranks all{2};
  const std::string wrong = all.run([](group& g) -> task<> {
    local_mr out = memory_of(g, 50'000, 5);
    local_mr in = memory_of(g, 50'000);
    co_await g.send(out.slice(), g.rank(), 8);
    expect((co_await g.receive(in.slice(), g.rank())).size_bytes == 50'000, "its length");
    expect(is_all(in, 50'000, 5), "its bytes");
    for (unsigned i = 0; i < 40; ++i) co_await g.send({}, 1 - g.rank(), i);
    for (unsigned i = 0; i < 40; ++i)
      expect((co_await g.receive({}, {}, i)).size_bytes == 0, "an empty one");
  });
  CHECK(wrong == "");
}

TEST_CASE("a message that is too long is refused by name, and stays for the next receive",
          "[group][device]") {
  for (const std::size_t size : {std::size_t{100}, std::size_t{100'000}}) {
    ranks all{2};
    const std::string wrong = all.run([size](group& g) -> task<> {
      local_mr memory = memory_of(g, size, g.rank() == 0 ? 7 : 0);
      if (g.rank() == 0) co_return co_await g.send(memory.slice(), 1);
      const auto refused = co_await as_result(g.receive(memory.first(99)));
      expect(code_of(refused) == errc::wrong_length, "its code");
      expect(refused.failure().to_string().find(std::to_string(size)) != std::string::npos,
             "named");
      co_await g.receive(memory.slice());
      expect(is_all(memory, size, 7), "its bytes");
    });
    CHECK(wrong == "");
  }
}

TEST_CASE("a stopped receive loses no message", "[group][device]") {
  ranks all{2};
  const std::string wrong = all.run([](group& g) -> task<> {
    local_mr memory = memory_of(g, 100'000, g.rank() == 0 ? 7 : 0);
    if (g.rank() == 0) {
      co_await g.barrier();
      for (int i = 0; i < 20; ++i) co_await g.send(memory.slice(), 1);
      co_return;
    }
    expect(code_of(co_await as_result(with_timeout(g.receive(memory.slice()), 1ms))) ==
               errc::timed_out,
           "a stop");
    co_await g.barrier();
    for (int left = 20; left > 0;) {
      const auto one = co_await as_result(with_timeout(g.receive(memory.slice()), 10us));
      if (one.has_value()) --left;
    }
    expect(is_all(memory, 100'000, 7), "its bytes");
  });
  CHECK(wrong == "");
}

TEST_CASE("a stopped send takes its message back", "[group][device]") {
  ranks all{2};
  const std::string wrong = all.run([](group& g) -> task<> {
    local_mr memory = memory_of(g, 100'000, g.rank() == 0 ? 7 : 0);
    if (g.rank() == 0) {
      expect(code_of(co_await as_result(with_timeout(g.send(memory.slice(), 1, 1), 1ms))) ==
                 errc::timed_out,
             "a stop");
      co_await g.barrier();
      local_mr other = memory_of(g, 100'000, 8);
      co_return co_await g.send(other.slice(), 1, 1);
    }
    co_await g.barrier();
    co_await g.receive(memory.slice());
    expect(is_all(memory, 100'000, 8), "the second");
  });
  CHECK(wrong == "");
}

TEST_CASE("ranks that there are not are refused by name", "[group][device]") {
  ranks all{2};
  const std::string wrong = all.run([](group& g) -> task<> {
    local_mr memory = memory_of(g, 1);
    try {
      co_await g.send(memory.slice(), 2);
      expect(false, "sent");
    } catch (const error& e) {
      expect(e.failure().code == errc::out_of_range, "its code");
    }
  });
  CHECK(wrong == "");
}
