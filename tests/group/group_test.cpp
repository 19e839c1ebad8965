#include <cordma/group/group.hpp>

#include "ranks.hpp"
#include "support/outcome.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <numeric>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::code_of;
using test::expect;
using test::ranks;

namespace {

/// Bytes that depend on the rank and the position.
void fill(std::span<std::byte> bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 7 + seed * 31 + i / 251);
}

bool is_filled(std::span<const std::byte> bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != std::byte(i * 7 + seed * 31 + i / 251)) return false;
  return true;
}

constexpr std::size_t sizes[] = {0, 1, 8, 8192, 8193, 100'000};

}  // namespace

TEST_CASE("a group knows its rank, its size and who shares its host", "[group][device]") {
  ranks all{4, {}, 2};
  for (unsigned r = 0; r < 4; ++r) {
    CHECK(all[r].rank() == r);
    CHECK(all[r].size() == 4);
    CHECK(all[r].local_peers() ==
          (r < 2 ? std::vector<unsigned>{0, 1} : std::vector<unsigned>{2, 3}));
    CHECK(all[r].failed_ranks().empty());
    CHECK_FALSE(all[r].why_failed());
  }
}

TEST_CASE("a group of one has done each operation at once", "[group][device]") {
  ranks all{1};
  local_mr memory = all.rt().memory().allocate_zeroed(16);
  const std::string wrong = all.run([&](group& g) -> task<> {
    co_await g.barrier();
    co_await g.broadcast(memory, 0);
    co_await g.all_reduce<float>(memory, memory, reduction::sum);
    co_await g.all_to_all(memory.first(8), memory.last(8));
  });
  CHECK(wrong == "");
  CHECK(all[0].counters().sent == 0);
  CHECK(all[0].counters().connections == 0);
}

TEST_CASE("no rank leaves a barrier before all have come", "[group][device]") {
  for (const unsigned size : {2u, 3u, 5u, 8u}) {
    ranks all{size};
    unsigned came = 0;
    const std::string wrong = all.run([&](group& g) -> task<> {
      for (unsigned round = 1; round <= 20; ++round) {
        ++came;
        co_await g.barrier();
        expect(came >= round * size, "a rank left a barrier early");
      }
    });
    CHECK(wrong == "");
  }
}

TEST_CASE("a broadcast gives the root's bytes to all, of any length and root", "[group][device]") {
  for (const unsigned size : {2u, 3u, 6u}) {
    ranks all{size};
    const std::string wrong = all.run([](group& g) -> task<> {
      for (const std::size_t length : sizes) {
        for (unsigned root = 0; root < g.size(); ++root) {
          local_mr memory = g.runtime().memory().allocate_zeroed(length + 1);
          if (g.rank() == root) fill(memory.first(length).bytes(), root + 1);
          co_await g.broadcast(memory.first(length), root);
          expect(is_filled(memory.first(length).bytes(), root + 1), "other bytes than the root's");
          expect(memory.bytes()[length] == std::byte{0}, "a byte beyond");
        }
      }
    });
    CHECK(wrong == "");
  }
}

TEST_CASE("blocks are scattered, gathered and exchanged", "[group][device]") {
  for (const unsigned size : {2u, 3u, 5u}) {
    ranks all{size};
    const std::string wrong = all.run([](group& g) -> task<> {
      mr_allocator& memory = g.runtime().memory();
      for (const std::size_t length : sizes) {
        local_mr own = memory.allocate_zeroed(length + 1);
        local_mr blocks = memory.allocate_zeroed(g.size() * length + 1);
        local_mr back = memory.allocate_zeroed(g.size() * length + 1);
        const auto block = [&](local_mr& of, unsigned r) { return of.slice(r * length, length); };
        const unsigned root = g.size() - 1;
        const bool is_root = g.rank() == root;

        fill(own.first(length).bytes(), g.rank());
        co_await g.all_gather(own.first(length), blocks.first(g.size() * length));
        for (unsigned r = 0; r < g.size(); ++r)
          expect(is_filled(block(blocks, r).bytes(), r), "all_gather");

        co_await g.gather(own.first(length),
                          is_root ? back.first(g.size() * length) : local_mr_slice{}, root);
        if (is_root) expect(std::ranges::equal(back.bytes(), blocks.bytes()), "gather");

        local_mr part = memory.allocate_zeroed(length + 1);
        co_await g.scatter(is_root ? blocks.first(g.size() * length) : local_mr_slice{},
                           part.first(length), root);
        expect(is_filled(part.first(length).bytes(), g.rank()), "scatter");

        for (unsigned r = 0; r < g.size(); ++r) fill(block(blocks, r).bytes(), g.rank() * 16 + r);
        co_await g.all_to_all(blocks.first(g.size() * length), back.first(g.size() * length));
        for (unsigned r = 0; r < g.size(); ++r)
          expect(is_filled(block(back, r).bytes(), r * 16 + g.rank()), "all_to_all");
      }
    });
    CHECK(wrong == "");
  }
}

TEST_CASE("uneven blocks go where their lengths say", "[group][device]") {
  ranks all{4};
  const std::string wrong = all.run([](group& g) -> task<> {
    mr_allocator& memory = g.runtime().memory();
    const std::vector<std::size_t> lengths{3, 0, 20'000, 9};
    const std::size_t total = std::reduce(lengths.begin(), lengths.end());
    const std::size_t length = lengths[g.rank()];
    local_mr own = memory.allocate_zeroed(length + 1);
    local_mr whole = memory.allocate_zeroed(total);
    fill(own.first(length).bytes(), g.rank());
    co_await g.all_gather_uneven(own.first(length), whole.slice(), lengths);
    std::size_t at = 0;
    for (unsigned r = 0; r < g.size(); at += lengths[r++])
      expect(is_filled(whole.slice(at, lengths[r]).bytes(), r), "all_gather_uneven");

    const bool is_root = g.rank() == 1;
    local_mr part = memory.allocate_zeroed(length + 1);
    co_await g.scatter_uneven(
        is_root ? whole.slice() : local_mr_slice{},
        is_root ? std::span<const std::size_t>{lengths} : std::span<const std::size_t>{},
        part.first(length), 1);
    expect(is_filled(part.first(length).bytes(), g.rank()), "scatter_uneven");

    local_mr back = memory.allocate_zeroed(total);
    co_await g.gather_uneven(
        own.first(length), is_root ? back.slice() : local_mr_slice{},
        is_root ? std::span<const std::size_t>{lengths} : std::span<const std::size_t>{}, 1);
    if (is_root) expect(std::ranges::equal(back.bytes(), whole.bytes()), "gather_uneven");

    // Rank a sends rank b as many bytes as their numbers make.
    std::vector<std::size_t> sent, received;
    for (unsigned r = 0; r < g.size(); ++r) {
      sent.push_back(100 * g.rank() + r);
      received.push_back(100 * r + g.rank());
    }
    local_mr out = memory.allocate_zeroed(std::reduce(sent.begin(), sent.end()));
    local_mr in = memory.allocate_zeroed(std::reduce(received.begin(), received.end()));
    at = 0;
    for (unsigned r = 0; r < g.size(); at += sent[r++])
      fill(out.slice(at, sent[r]).bytes(), g.rank() * 16 + r);
    co_await g.all_to_all_uneven(out.slice(), sent, in.slice(), received);
    at = 0;
    for (unsigned r = 0; r < g.size(); at += received[r++])
      expect(is_filled(in.slice(at, received[r]).bytes(), r * 16 + g.rank()), "all_to_all_uneven");
  });
  CHECK(wrong == "");
}

TEST_CASE("elements are combined on one rank, on all, in blocks, and up to each",
          "[group][device]") {
  for (const unsigned size : {2u, 3u, 7u}) {
    ranks all{size};
    const std::string wrong = all.run([](group& g) -> task<> {
      mr_allocator& memory = g.runtime().memory();
      for (const std::size_t count : {std::size_t{1}, std::size_t{5}, std::size_t{30'000}}) {
        const std::size_t elements = count * g.size();
        local_mr in = memory.allocate_zeroed(elements * 8);
        local_mr out = memory.allocate_zeroed(elements * 8);
        const auto values = in.slice().as<std::int64_t>();
        for (std::size_t i = 0; i < elements; ++i) values[i] = std::int64_t(i) * (g.rank() + 1);
        const auto sum_to = [](unsigned r) { return std::int64_t(r + 1) * (r + 2) / 2; };
        const auto results = out.slice().as<std::int64_t>();
        const auto is = [&](std::size_t n, std::size_t first, std::int64_t factor) {
          for (std::size_t i = 0; i < n; ++i)
            if (results[i] != std::int64_t(first + i) * factor) return false;
          return true;
        };
        const std::int64_t sum = sum_to(g.size() - 1);

        co_await g.all_reduce<std::int64_t>(in.slice(), out.slice(), reduction::sum);
        expect(is(elements, 0, sum), "all_reduce");
        const bool is_root = g.rank() == g.size() / 2;
        co_await g.reduce<std::int64_t>(in.slice(), is_root ? out.slice() : local_mr_slice{},
                                        reduction::max, g.size() / 2);
        if (is_root) expect(is(elements, 0, g.size()), "reduce");
        co_await g.reduce_scatter<std::int64_t>(in.slice(), out.first(count * 8), reduction::sum);
        expect(is(count, count * g.rank(), sum), "reduce_scatter");
        co_await g.scan<std::int64_t>(in.slice(), out.slice(), reduction::sum);
        expect(is(elements, 0, sum_to(g.rank())), "scan");
        co_await g.all_reduce<std::int64_t>(
            in.slice(), in.slice(), [](std::int64_t a, std::int64_t b) { return a > b ? a : b; });
        expect(values[elements - 1] == std::int64_t(elements - 1) * g.size(), "a user's operation");
      }
    });
    CHECK(wrong == "");
  }
}

TEST_CASE("memory that is not registered is copied there and back", "[group][device]") {
  ranks all{3};
  const std::string wrong = all.run([](group& g) -> task<> {
    std::vector<float> values(1000, float(g.rank() + 1));
    co_await g.all_reduce(std::span{values}, reduction::sum);
    expect(values == std::vector<float>(1000, 6.f), "all_reduce of a span");
    std::vector<int> one{int(g.rank())}, all_ranks(3);
    co_await g.all_gather(std::span<const int>{one}, std::span{all_ranks});
    expect(all_ranks == std::vector{0, 1, 2}, "all_gather of a span");
    co_await g.scan(std::span{one}, reduction::sum);
    expect(one[0] == int(g.rank() * (g.rank() + 1) / 2), "scan of a span");
    std::vector<int> none;
    co_await g.broadcast(std::span{none}, 0);
  });
  CHECK(wrong == "");
}

TEST_CASE("several operations of one group, and of its parts, are told apart", "[group][device]") {
  ranks all{6};
  const std::string wrong = all.run([](group& g) -> task<> {
    const auto sum_of = [](group& of, std::uint64_t value) -> task<std::uint64_t> {
      std::vector<std::uint64_t> v(3000, value);
      co_await of.all_reduce(std::span{v}, reduction::sum);
      co_return v[2999];
    };
    group half = co_await g.split(g.rank() % 2, 100 - g.rank());
    expect(half.size() == 3 && half.rank() == 2 - g.rank() / 2, "the order of keys");
    group same = co_await g.duplicate();
    for (unsigned round = 0; round < 5; ++round) {
      const auto [a, b, c, d] = co_await when_all(sum_of(g, 1), sum_of(half, g.rank() % 2),
                                                  sum_of(same, 3), sum_of(g, round));
      expect(a == 6 && b == 3 * (g.rank() % 2) && c == 18 && d == 6 * round, "sums got mixed up");
    }
    group some = co_await g.split(g.rank() < 2 ? std::optional<std::uint32_t>{7} : std::nullopt);
    expect(bool(some) == (g.rank() < 2), "a rank without a colour");
    if (some) co_await some.barrier();
  });
  CHECK(wrong == "");
}
