#include "group/collective_call.hpp"

#include "group/reductions.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <limits>

using namespace cordma;
using namespace cordma::detail;

namespace {

std::array<std::byte, 4096> bytes;

local_mr_slice memory(std::size_t offset, std::size_t length) {
  return {bytes.data() + offset, length, nullptr, 0, 0};
}

/// Returns what rank 1 of 4 is told of a call; empty: nothing.
std::string refusal(const collective_call& call, std::error_code code, unsigned rank = 1) {
  try {
    call.check(rank, 4);
  } catch (const error& e) {
    CHECK(e.code() == code);
    return e.what();
  }
  return {};
}
std::string wrong_length(const collective_call& call, unsigned rank = 1) {
  return refusal(call, errc::wrong_length, rank);
}
std::string out_of_range(const collective_call& call, unsigned rank = 1) {
  return refusal(call, errc::out_of_range, rank);
}

const reducer sum = reducer_of(element_type::int32, reduction::sum);
const std::array<std::size_t, 4> lengths{8, 0, 4, 12};

using Catch::Contains;

}  // namespace

TEST_CASE("a root that is no rank is refused by name", "[group]") {
  using enum collective_kind;
  for (const collective_kind kind : {broadcast, scatter, gather, reduce}) {
    const collective_call call{.kind = kind, .root = 4, .reduction = &sum};
    CHECK_THAT(out_of_range(call),
               Contains("root 4 is none of 4 ranks, 0 to 3") && Contains(to_string(kind)));
  }
}

TEST_CASE("arguments of the right lengths pass", "[group]") {
  using enum collective_kind;
  const auto call = [](collective_kind kind, std::size_t in, std::size_t out) {
    return collective_call{.kind = kind,
                           .root = 1,
                           .in = memory(0, in),
                           .out = memory(2048, out),
                           .blocks = {8},
                           .received = {8},
                           .reduction = &sum};
  };
  CHECK(wrong_length(call(barrier, 0, 0)) == "");
  CHECK(wrong_length(call(broadcast, 0, 7)) == "");
  CHECK(wrong_length(call(scatter, 32, 8)) == "");
  CHECK(wrong_length(call(scatter, 0, 8), 2) == "");
  CHECK(wrong_length(call(gather, 8, 32)) == "");
  CHECK(wrong_length(call(gather, 8, 0), 2) == "");
  CHECK(wrong_length(call(all_gather, 8, 32)) == "");
  CHECK(wrong_length(call(reduce, 12, 12)) == "");
  CHECK(wrong_length(call(reduce, 12, 0), 2) == "");
  CHECK(wrong_length(call(all_reduce, 12, 12)) == "");
  CHECK(wrong_length(call(scan, 12, 12)) == "");
  CHECK(wrong_length(call(reduce_scatter, 32, 8)) == "");
  CHECK(wrong_length(call(all_to_all, 32, 32)) == "");
}

TEST_CASE("arguments of other lengths are refused, with both lengths", "[group]") {
  using enum collective_kind;
  const auto call = [](collective_kind kind, std::size_t in, std::size_t out) {
    return collective_call{.kind = kind,
                           .root = 1,
                           .in = memory(0, in),
                           .out = memory(2048, out),
                           .blocks = {8},
                           .received = {8},
                           .reduction = &sum};
  };
  CHECK_THAT(wrong_length(call(scatter, 31, 8)),
             Contains("`in` of rank 1 has 31 bytes, and must have 32"));
  CHECK_THAT(wrong_length(call(scatter, 32, 7)),
             Contains("`out` of rank 1 has 7 bytes, and must have 8"));
  CHECK_THAT(wrong_length(call(scatter, 32, 8), 2),
             Contains("`in` of rank 2 has 32 bytes, and must have 0"));
  CHECK_THAT(wrong_length(call(gather, 8, 31)), Contains("`out` of rank 1 has 31 bytes"));
  CHECK_THAT(wrong_length(call(gather, 9, 32)), Contains("`in` of rank 1 has 9 bytes"));
  CHECK_THAT(wrong_length(call(gather, 8, 32), 2), Contains("`out` of rank 2 has 32 bytes"));
  CHECK_THAT(wrong_length(call(all_gather, 8, 24)), Contains("`out` of rank 1 has 24 bytes"));
  CHECK_THAT(wrong_length(call(all_gather, 7, 32)), Contains("`in` of rank 1 has 7 bytes"));
  CHECK_THAT(wrong_length(call(reduce, 12, 8)), Contains("`out` of rank 1 has 8 bytes"));
  CHECK_THAT(wrong_length(call(reduce, 12, 12), 0), Contains("`out` of rank 0 has 12 bytes"));
  CHECK_THAT(wrong_length(call(all_reduce, 12, 8)), Contains("`out` of rank 1 has 8 bytes"));
  CHECK_THAT(wrong_length(call(scan, 10, 10)),
             Contains("10 bytes on rank 1 are no whole number of elements of 4 bytes"));
  CHECK_THAT(wrong_length(call(reduce_scatter, 28, 8)), Contains("`in` of rank 1 has 28 bytes"));
  CHECK_THAT(wrong_length(call(reduce_scatter, 32, 4)), Contains("`out` of rank 1 has 4 bytes"));
  CHECK_THAT(wrong_length(call(all_to_all, 24, 32)), Contains("`in` of rank 1 has 24 bytes"));
  CHECK_THAT(wrong_length(call(all_to_all, 32, 40)), Contains("`out` of rank 1 has 40 bytes"));
}

TEST_CASE("lists of lengths are as the call says, and only there", "[group]") {
  using enum collective_kind;
  const auto call = [](collective_kind kind, std::size_t in, std::size_t out) {
    return collective_call{.kind = kind,
                           .root = 1,
                           .in = memory(0, in),
                           .out = memory(2048, out),
                           .blocks = {0, lengths},
                           .received = {0, lengths},
                           .is_uneven = true,
                           .reduction = &sum};
  };
  CHECK(wrong_length(call(scatter, 24, 0)) == "");
  CHECK(wrong_length(call(gather, 0, 24)) == "");
  CHECK(wrong_length(call(all_gather, 0, 24)) == "");
  CHECK(wrong_length(call(reduce_scatter, 24, 0)) == "");
  CHECK(wrong_length(call(all_to_all, 24, 24)) == "");
  CHECK_THAT(wrong_length(call(scatter, 0, 4), 2),
             Contains("`blocks` of rank 2 lists 4 lengths, and must list 0"));
  collective_call even = call(all_gather, 0, 24);
  even.is_uneven = false;
  CHECK_THAT(wrong_length(even), Contains("`blocks` of rank 1 lists 4 lengths, and must list 0"));
  collective_call few = call(all_to_all, 24, 24);
  few.received.of = few.received.of.first(3);
  CHECK_THAT(wrong_length(few), Contains("`received` of rank 1 lists 3 lengths, and must list 4"));
  const std::array<std::size_t, 4> parts{8, 2, 2, 12};
  collective_call cut = call(reduce_scatter, 24, 2);
  cut.blocks.of = parts;
  CHECK_THAT(wrong_length(cut), Contains("2 bytes on rank 1 are no whole number of elements"));
  const std::array<std::size_t, 4> huge{std::numeric_limits<std::size_t>::max(), 0, 1, 24};
  collective_call wrapped = call(all_gather, 0, 24);
  wrapped.blocks.of = huge;
  CHECK_THAT(wrong_length(wrapped), Contains("must have 18446744073709551615"));
}

TEST_CASE("in place is where a kind says, and nowhere else", "[group]") {
  using enum collective_kind;
  const auto call = [](collective_kind kind, local_mr_slice in, local_mr_slice out) {
    return collective_call{.kind = kind,
                           .root = 1,
                           .in = in,
                           .out = out,
                           .blocks = {8},
                           .received = {8},
                           .reduction = &sum};
  };
  CHECK(out_of_range(call(scatter, memory(0, 32), memory(8, 8))) == "");
  CHECK(out_of_range(call(gather, memory(8, 8), memory(0, 32))) == "");
  CHECK(out_of_range(call(all_gather, memory(8, 8), memory(0, 32))) == "");
  CHECK(out_of_range(call(reduce_scatter, memory(0, 32), memory(8, 8))) == "");
  CHECK(out_of_range(call(all_reduce, memory(0, 32), memory(0, 32))) == "");
  CHECK(out_of_range(call(all_to_all, memory(0, 32), memory(0, 32))) == "");
  CHECK(out_of_range(call(all_reduce, memory(0, 32), memory(32, 32))) == "");
  const auto overlap = Contains("`in` and `out` of rank 1 overlap");
  CHECK_THAT(out_of_range(call(scatter, memory(0, 32), memory(0, 8))),
             overlap && Contains("offset 8"));
  CHECK_THAT(out_of_range(call(gather, memory(4, 8), memory(0, 32))), overlap);
  CHECK_THAT(out_of_range(call(all_gather, memory(28, 8), memory(0, 32))), overlap);
  CHECK_THAT(out_of_range(call(reduce_scatter, memory(4, 32), memory(0, 8))), overlap);
  CHECK_THAT(out_of_range(call(all_reduce, memory(4, 32), memory(0, 32))), overlap);
  CHECK_THAT(out_of_range(call(scan, memory(0, 32), memory(4, 32))), overlap);
  CHECK_THAT(out_of_range(call(all_to_all, memory(8, 32), memory(0, 32))), overlap);
  collective_call uneven = call(all_to_all, memory(0, 24), memory(0, 24));
  uneven.is_uneven = true;
  uneven.blocks = uneven.received = {0, lengths};
  CHECK_THAT(out_of_range(uneven), Contains("are the same memory"));
}

TEST_CASE("the table chooses by a length that all ranks know", "[group]") {
  using enum collective_kind;
  const auto size = [](collective_kind kind, bool is_uneven = false) {
    collective_call call{.kind = kind, .in = memory(0, 12), .out = memory(20, 20), .blocks = {8}};
    call.is_uneven = is_uneven;
    if (is_uneven) call.blocks.of = lengths;
    return call.size_bytes(4);
  };
  CHECK(size(barrier) == 0);
  CHECK(size(broadcast) == 20);
  CHECK(size(scatter) == 8);
  CHECK(size(gather) == 8);
  CHECK(size(all_to_all) == 8);
  CHECK(size(all_gather) == 32);
  CHECK(size(reduce_scatter) == 32);
  CHECK(size(reduce) == 12);
  CHECK(size(all_reduce) == 12);
  CHECK(size(scan) == 12);
  CHECK(size(scatter, true) == 0);
  CHECK(size(gather, true) == 0);
  CHECK(size(all_to_all, true) == 0);
  CHECK(size(all_gather, true) == 24);
}
