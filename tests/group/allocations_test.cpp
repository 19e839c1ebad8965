#include <cordma/group/group.hpp>

#include "ranks.hpp"
#include "support/allocations.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

using namespace cordma;
using test::expect;
using test::ranks;

namespace {

constexpr unsigned size = 5;
constexpr std::array<std::size_t, 4> lengths{40, 8 * 1000, 40'000, 400'000};

using operation = std::function<task<>(group&, local_mr& in, local_mr& out, std::size_t bytes)>;

local_mr_slice at_root(group& g, const local_mr_slice& there) {
  return g.rank() == 0 ? there : local_mr_slice{};
}

const std::vector<std::pair<const char*, operation>> operations{
    {"barrier", [](group& g, local_mr&, local_mr&, std::size_t) { return g.barrier(); }},
    {"broadcast",
     [](group& g, local_mr& in, local_mr&, std::size_t n) { return g.broadcast(in.first(n), 1); }},
    {"scatter",
     [](group& g, local_mr& in, local_mr& out, std::size_t n) {
       return g.scatter(at_root(g, in.first(n * size)), out.first(n), 0);
     }},
    {"gather",
     [](group& g, local_mr& in, local_mr& out, std::size_t n) {
       return g.gather(in.first(n), at_root(g, out.first(n * size)), 0);
     }},
    {"all_gather", [](group& g, local_mr& in, local_mr& out,
                      std::size_t n) { return g.all_gather(in.first(n), out.first(n * size)); }},
    {"all_to_all",
     [](group& g, local_mr& in, local_mr& out, std::size_t n) {
       return g.all_to_all(in.first(n * size), out.first(n * size));
     }},
    {"reduce",
     [](group& g, local_mr& in, local_mr& out, std::size_t n) {
       return g.reduce<float>(in.first(n), at_root(g, out.first(n)), reduction::sum, 0);
     }},
    {"all_reduce",
     [](group& g, local_mr& in, local_mr& out, std::size_t n) {
       return g.all_reduce<float>(in.first(n), out.first(n), reduction::sum);
     }},
    {"reduce_scatter",
     [](group& g, local_mr& in, local_mr& out, std::size_t n) {
       return g.reduce_scatter<float>(in.first(n * size), out.first(n), reduction::sum);
     }},
    {"scan",
     [](group& g, local_mr& in, local_mr& out, std::size_t n) {
       return g.scan<float>(in.first(n), out.first(n), reduction::sum);
     }},
    {"by tag",
     [](group& g, local_mr& in, local_mr& out, std::size_t n) -> task<> {
       co_await when_all(g.send(in.first(n), (g.rank() + 1) % size, 1), g.receive(out.slice()));
     }},
};

/// Returns the allocations of some rounds on all ranks, once some have been before.
std::uint64_t allocations_of(ranks& all, const operation& what, std::size_t bytes,
                             std::string& wrong) {
  constexpr unsigned rounds = 16;
  std::uint64_t allocated = 0;
  wrong += all.run([&](group& g) -> task<> {
    local_mr in = g.runtime().memory().allocate_zeroed(bytes * size);
    local_mr out = g.runtime().memory().allocate_zeroed(bytes * size);
    const auto repeat = [&]() -> task<> {
      for (unsigned n = 0; n < rounds; ++n) {
        co_await what(g, in, out, bytes);
        co_await g.barrier();
      }
    };
    co_await repeat();
    co_await repeat();
    if (g.rank() == 0) allocated = support::thread_allocation_count();
    co_await repeat();
    if (g.rank() == 0) allocated = support::thread_allocation_count() - allocated;
    co_await g.barrier();
  });
  return allocated;
}

}  // namespace

TEST_CASE("operations of a group, and messages by tag, allocate nothing once warm",
          "[group][device]") {
  if (!support::counts_allocations()) CORDMA_SKIP("its malloc is not counted");
  ranks all{size};
  for (const std::size_t bytes : lengths) {
    // Soft-RoCE does not check a window's range: each loan is a registration of its own
    // (docs/devices.md), which allocates in libibverbs.
    if (test::is_rxe() && bytes * size > group_options{}.buffer_bytes / 2) continue;
    for (const auto& [name, what] : operations) {
      INFO(name << " of " << bytes << " bytes");
      std::string wrong;
      CHECK(allocations_of(all, what, bytes, wrong) == 0);
      CHECK(wrong == "");
    }
  }
}
