#include "group/group_context.hpp"

#include "group/reductions.hpp"
#include "ranks.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <string_view>

using namespace cordma;
using namespace cordma::detail;

namespace {

/// Returns the messages that rank 0 of four sends for one all_reduce by an algorithm.
std::uint64_t messages_by(std::string_view name) {
  test::ranks all{4};
  const algorithm& by = *std::ranges::find_if(algorithms(), [name](const algorithm& a) {
    return a.kind == collective_kind::all_reduce && a.name == name;
  });
  const reducer sum = reducer_of(element_type_of<float>(), reduction::sum);
  CHECK(all.run([&](group& g) -> task<> {
    const counted_ref<group_context> context = group_context::of(g);
    const algorithm_table table = context->whole().algorithms().with(by);
    local_mr data = g.runtime().memory().allocate_zeroed(64);
    data.slice().as<float>()[15] = float(g.rank() + 1);
    collective_call call{.kind = collective_kind::all_reduce,
                         .in = data.slice(),
                         .out = data.slice(),
                         .reduction = &sum};
    co_await group_context::run(context, call, table);
    test::expect(data.slice().as<float>()[15] == 10, "the sum of all ranks");
  }) == "");
  return all[0].counters().sent;
}

}  // namespace

TEST_CASE("an operation may run by another table than the group's", "[group][device]") {
  CHECK(messages_by("recursive_doubling") == 2);
  CHECK(messages_by("ring") == 6);
}
