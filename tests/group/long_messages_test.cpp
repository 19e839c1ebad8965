#include "group/interval_memory.hpp"
#include "group/reductions.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::detail;

namespace {

constexpr std::size_t GiB = std::size_t(1) << 30;

std::uint64_t number_of(unsigned rank) { return std::uint64_t(1) << 8 * rank; }

/// An operation on memory without bytes: `bytes` in a block where there are blocks, else in all.
struct long_operation {
  using enum collective_kind;

  collective_kind kind;
  unsigned ranks;
  std::size_t bytes;
  bool is_aliased = false;

  model::interval_memory memory{};
  std::vector<collective_call> calls{};

  /// Returns true if each rank has what it should have.
  bool is_right_by(const std::string& name) {
    const algorithm_table table{std::string{to_string(kind)} + '=' + name + " segment=64M"};
    const reducer sum = reducer_of(element_type::float64, reduction::sum);
    for (unsigned rank = 0; rank < ranks; ++rank) calls.push_back(call_of(rank, &sum));
    model::model_group group{ranks, unsigned(bytes % 97), memory};
    for (unsigned rank = 0; rank < ranks; ++rank) calls[rank].check(rank, ranks);
    group.run(calls, table);
    for (unsigned rank = 0; rank < ranks; ++rank)
      if (!is_right(rank)) return false;
    return true;
  }

 private:
  collective_call call_of(unsigned rank, const reducer* sum) {
    const bool has_blocks = kind == all_gather || kind == all_to_all || kind == reduce_scatter;
    collective_call call{.kind = kind, .root = 1, .reduction = sum};
    if (has_blocks) call.blocks.each = call.received.each = bytes;
    const std::size_t all = bytes * ranks;
    if (kind == broadcast) {
      call.out = memory.allocate(bytes);
      if (rank == 1) memory.define(call.out, number_of(1));
      return call;
    }
    const std::size_t in = kind == all_to_all || kind == reduce_scatter ? all : bytes;
    const std::size_t out = kind == reduce                             ? (rank == 1 ? bytes : 0)
                            : kind == all_gather || kind == all_to_all ? all
                                                                       : bytes;
    const local_mr_slice given = memory.allocate(std::max(in, is_aliased ? out : 0));
    const bool is_block = is_aliased && in < out;
    call.in = is_block ? given.slice(rank * bytes, bytes) : given;
    memory.define(is_block ? given.slice(rank * bytes, bytes) : given, number_of(rank));
    call.out = !is_aliased || out == 0 ? memory.allocate(out)
               : out < in              ? given.slice(rank * bytes, bytes)
                                       : given;
    return call;
  }

  bool is_right(unsigned rank) {
    const local_mr_slice& out = calls[rank].out;
    std::uint64_t all = 0;
    for (unsigned of = 0; of < ranks; ++of) all += number_of(of);
    if (kind == broadcast) return memory.holds(out, number_of(1));
    if (kind == reduce_scatter) return memory.holds(out, all, rank * bytes);
    if (kind == scan) return memory.holds(out, all & (number_of(rank + 1) - 1));
    if (kind != all_gather && kind != all_to_all) return memory.holds(out, all);
    for (unsigned of = 0; of < ranks; ++of)
      if (!memory.holds(out.slice(of * bytes, bytes), number_of(of),
                        kind == all_to_all ? rank * bytes : 0))
        return false;
    return true;
  }
};

}  // namespace

TEST_CASE("messages beyond 4 GiB go by each algorithm, to the last byte", "[group]") {
  using enum collective_kind;
  const auto is_right = [](collective_kind kind, unsigned ranks, std::size_t bytes, bool is_aliased,
                           const char* name) {
    CAPTURE(to_string(kind), name, ranks, is_aliased);
    long_operation operation{kind, ranks, bytes, is_aliased};
    CHECK(operation.is_right_by(name));
  };
  for (const char* const name : {"binomial", "chain", "scatter_all_gather"})
    is_right(broadcast, 3, 8 * GiB + 24, false, name);
  for (const bool is_aliased : {false, true}) {
    for (const char* const name : {"bruck", "ring"})
      is_right(all_gather, 3, 4 * GiB + 24, is_aliased, name);
    for (const char* const name : {"recursive_doubling", "rabenseifner", "ring"})
      is_right(all_reduce, 3, 8 * GiB + 24, is_aliased, name);
    for (const char* const name : {"binomial", "rabenseifner"})
      is_right(reduce, 3, 8 * GiB + 24, is_aliased, name);
    for (const char* const name : {"recursive_halving", "ring", "pairwise"})
      is_right(reduce_scatter, 3, 5 * GiB + 24, is_aliased, name);
    for (const char* const name : {"bruck", "pairwise"})
      is_right(all_to_all, 3, 5 * GiB + 24, is_aliased, name);
    is_right(scan, 3, 8 * GiB + 24, is_aliased, "recursive_doubling");
  }
}
