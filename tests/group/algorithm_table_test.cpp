#include "group/algorithm_table.hpp"

#include "group/trial.hpp"
#include "support/variable.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::detail;
using namespace std::string_literals;

namespace {

/// Returns the name of the algorithm that a table has for a call of so many bytes.
std::string chosen(const algorithm_table& table, collective_kind kind, std::size_t bytes,
                   unsigned ranks, const host_map* hosts = nullptr, bool is_reproducible = false) {
  model::byte_memory memory;
  model::model_group group{ranks, 1, memory, hosts};
  collective_call call{.kind = kind, .is_reproducible = is_reproducible};
  const local_mr_slice data{nullptr, bytes, nullptr, 0, 0};
  call.in = call.out = data;
  call.blocks.each = bytes;
  if (kind == collective_kind::all_gather || kind == collective_kind::reduce_scatter)
    call.blocks.each = bytes / ranks;
  return table.choose(group.exchange_of(0), call).name;
}

}  // namespace

TEST_CASE("the table chooses by length and number of ranks", "[group]") {
  using enum collective_kind;
  const algorithm_table table;
  CHECK(chosen(table, barrier, 0, 5) == "dissemination"s);
  CHECK(chosen(table, broadcast, 16384, 4) == "binomial"s);
  CHECK(chosen(table, broadcast, 16385, 4) == "chain"s);
  CHECK(chosen(table, broadcast, 2 << 20, 8) == "scatter_all_gather"s);
  CHECK(chosen(table, broadcast, 2 << 20, 7) == "chain"s);
  CHECK(chosen(table, broadcast, 2 << 20, 4) == "chain"s);
  CHECK(chosen(table, broadcast, 16385, 65) == "scatter_all_gather"s);
  CHECK(chosen(table, broadcast, 17 << 20, 65) == "chain"s);
  CHECK(chosen(table, scatter, 16384, 4) == "binomial"s);
  CHECK(chosen(table, scatter, 16385, 4) == "linear"s);
  CHECK(chosen(table, gather, 16384, 4) == "binomial"s);
  CHECK(chosen(table, gather, 16385, 4) == "linear"s);
  CHECK(chosen(table, all_gather, 4096, 4) == "bruck"s);
  CHECK(chosen(table, all_gather, 4100, 4) == "recursive_doubling"s);
  CHECK(chosen(table, all_gather, 4100, 5) == "ring"s);
  CHECK(chosen(table, reduce, 16384, 4) == "binomial"s);
  CHECK(chosen(table, reduce, 16385, 4) == "rabenseifner"s);
  CHECK(chosen(table, all_reduce, 4096, 4) == "recursive_doubling"s);
  CHECK(chosen(table, all_reduce, 4097, 4) == "rabenseifner"s);
  CHECK(chosen(table, all_reduce, 256 << 10, 6) == "rabenseifner"s);
  CHECK(chosen(table, all_reduce, (256 << 10) + 1, 6) == "ring"s);
  CHECK(chosen(table, reduce_scatter, 256 << 10, 6) == "recursive_halving"s);
  CHECK(chosen(table, reduce_scatter, (256 << 10) + 6, 6) == "ring"s);
  for (const unsigned ranks : {4u, 8u, 16u}) {
    CHECK(chosen(table, all_gather, 1 << 30, ranks) == "recursive_doubling"s);
    CHECK(chosen(table, all_reduce, 1 << 30, ranks) == "rabenseifner"s);
    CHECK(chosen(table, reduce_scatter, 1 << 30, ranks) == "recursive_halving"s);
  }
  CHECK(chosen(table, all_to_all, 256, 8) == "bruck"s);
  CHECK(chosen(table, all_to_all, 256, 7) == "pairwise"s);
  CHECK(chosen(table, all_to_all, 257, 8) == "pairwise"s);
  CHECK(chosen(table, scan, 1 << 30, 8) == "recursive_doubling"s);
}

TEST_CASE("two levels run where several hosts have several ranks each", "[group]") {
  using enum collective_kind;
  const algorithm_table table;
  const std::vector<std::uint64_t> shared{1, 1, 2, 2};
  const std::vector<std::uint64_t> mixed{1, 2, 1, 2};
  const std::vector<std::uint64_t> single{1, 2, 3, 4};
  const host_map two{shared};
  const host_map crossed{mixed};
  const host_map four{single};
  for (const collective_kind kind : {barrier, broadcast, reduce, all_reduce, all_gather}) {
    CHECK(chosen(table, kind, 64, 4, &two) == "two_level"s);
    CHECK(chosen(table, kind, 64, 4, &four) != "two_level"s);
    CHECK(chosen(table, kind, 64, 4, &two, true) != "two_level"s);
  }
  CHECK(chosen(table, all_gather, 64, 4, &crossed) == "bruck"s);
}

TEST_CASE("a table with an algorithm in front chooses it wherever it can run", "[group]") {
  using enum collective_kind;
  const auto with = [](std::string_view name) {
    return algorithm_table{}.with(*std::ranges::find_if(algorithms(), [name](const algorithm& a) {
      return a.kind == all_reduce && a.name == name;
    }));
  };
  CHECK(chosen(with("ring"), all_reduce, 0, 1) == "ring"s);
  CHECK(chosen(with("ring"), all_reduce, 1 << 30, 65) == "ring"s);
  CHECK(chosen(with("ring"), all_reduce, 64, 4, nullptr, true) == "recursive_doubling"s);
  CHECK(chosen(with("ring"), all_gather, 64, 4) == "bruck"s);
  CHECK(chosen(with("two_level"), all_reduce, 64, 4) == "recursive_doubling"s);
}

TEST_CASE("a reproducible result comes by no ring", "[group]") {
  using enum collective_kind;
  const algorithm_table table{"all_reduce=ring, reduce_scatter=pairwise, reduce_scatter=ring"};
  CHECK(chosen(table, all_reduce, 64, 4) == "ring"s);
  CHECK(chosen(table, all_reduce, 1 << 30, 4, nullptr, true) == "rabenseifner"s);
  CHECK(chosen(table, reduce_scatter, 1 << 30, 4, nullptr, true) == "recursive_halving"s);
}

TEST_CASE("blocks of different lengths come by an algorithm for them", "[group]") {
  using enum collective_kind;
  const algorithm_table table{"scatter=binomial gather=binomial all_to_all=bruck"};
  model::byte_memory memory;
  model::model_group group{4, 1, memory};
  const auto uneven = [&](collective_kind kind, std::size_t each) {
    const std::vector<std::size_t> lengths(4, each);
    const collective_call call{.kind = kind, .blocks = {0, lengths}, .is_uneven = true};
    return std::string{table.choose(group.exchange_of(0), call).name};
  };
  CHECK(uneven(scatter, 8) == "linear");
  CHECK(uneven(gather, 8) == "linear");
  CHECK(uneven(all_to_all, 8) == "pairwise");
  CHECK(uneven(all_gather, 8) == "bruck");
  CHECK(uneven(reduce_scatter, 8) == "recursive_halving");
  CHECK(uneven(reduce_scatter, 1 << 20) == "recursive_halving");
}

TEST_CASE("the first change of a table that fits counts", "[group]") {
  using enum collective_kind;
  const algorithm_table table{
      "all_reduce=ring@64K..1M, all_reduce=rabenseifner@..100:3..5 broadcast=chain,segment=1M"};
  CHECK(table.segment_bytes() == 1 << 20);
  CHECK(chosen(table, all_reduce, 65536, 4) == "ring"s);
  CHECK(chosen(table, all_reduce, 65535, 4) == "rabenseifner"s);
  CHECK(chosen(table, all_reduce, 1 << 20, 4) == "ring"s);
  CHECK(chosen(table, all_reduce, 100, 5) == "rabenseifner"s);
  CHECK(chosen(table, all_reduce, 100, 6) == "recursive_doubling"s);
  CHECK(chosen(table, all_reduce, 101, 5) == "recursive_doubling"s);
  CHECK(chosen(table, broadcast, 1, 4) == "chain"s);
}

TEST_CASE("CORDMA_COLLECTIVES changes the table where the program does not", "[group]") {
  using enum collective_kind;
  const test::variable set{"CORDMA_COLLECTIVES",
                           "all_reduce=ring, scatter=linear, segment=128K segment=1M"};
  const algorithm_table table = configured_algorithms("all_reduce=rabenseifner@..100");
  CHECK(chosen(table, all_reduce, 100, 4) == "rabenseifner"s);
  CHECK(chosen(table, all_reduce, 101, 4) == "ring"s);
  CHECK(chosen(table, scatter, 8, 4) == "linear"s);
  CHECK(chosen(table, gather, 8, 4) == "binomial"s);
  CHECK(table.segment_bytes() == 128 << 10);
  CHECK(configured_algorithms("segment=1K").segment_bytes() == 1024);
}

TEST_CASE("a table without CORDMA_COLLECTIVES, or with an empty one, is what the program says",
          "[group]") {
  for (const char* const text : {static_cast<const char*>(nullptr), "", " , "}) {
    const test::variable set{"CORDMA_COLLECTIVES", text};
    CHECK(configured_algorithms("").to_string() == algorithm_table{}.to_string());
    CHECK(configured_algorithms("segment=1K").segment_bytes() == 1024);
  }
}

TEST_CASE("a wrong text of CORDMA_COLLECTIVES is named with the variable", "[group]") {
  const test::variable set{"CORDMA_COLLECTIVES", "scan=ring"};
  CHECK_THROWS_WITH(configured_algorithms(""),
                    Catch::Contains("CORDMA_COLLECTIVES") && Catch::Contains("'scan=ring'") &&
                        Catch::Contains("ring is none of recursive_doubling"));
  CHECK_THROWS_WITH(configured_algorithms(""), !Catch::Contains("algorithm_table"));
  const test::variable unset{"CORDMA_COLLECTIVES", nullptr};
  CHECK_THROWS_WITH(configured_algorithms("scan=ring"),
                    Catch::Contains("ring is none of recursive_doubling") &&
                        !Catch::Contains("CORDMA_COLLECTIVES"));
}

TEST_CASE("equal tables have equal texts, and a change shows", "[group]") {
  const std::string text = algorithm_table{}.to_string();
  CHECK(algorithm_table{" ,\n"}.to_string() == text);
  CHECK(algorithm_table{"segment=512K"}.to_string() != text);
  const algorithm_table changed{"all_to_all=bruck@1K..2K:16.."};
  CHECK(changed.to_string().find(
            "all_to_all      bruck               1024..2048            16..\n") !=
        std::string::npos);
  CHECK(changed.to_string().find(
            "barrier         dissemination       ..                    ..\n") != std::string::npos);
  CHECK(text.find("segment 262144\n") != std::string::npos);
}

TEST_CASE("a call whose arguments do not fit is refused before anything is sent", "[group]") {
  model::byte_memory memory;
  model::model_group group{4, 1, memory};
  const algorithm_table table;
  const collective_call call{.kind = collective_kind::broadcast, .root = 4};
  CHECK_THROWS_WITH(static_cast<void>(run(group.exchange_of(0), call, table)),
                    Catch::Contains("broadcast") && Catch::Contains("root 4 is none of 4 ranks"));
  CHECK(group.of(0).messages == 0);
}

TEST_CASE("a message of more segments than there are steps is refused", "[group]") {
  model::byte_memory memory;
  model::model_group group{4, 1, memory};
  const algorithm_table table{"segment=64"};
  collective_call call{.kind = collective_kind::broadcast};
  call.out = local_mr_slice{nullptr, std::size_t(1) << 32, nullptr, 0, 0};
  CHECK_THROWS_WITH(static_cast<void>(run(group.exchange_of(0), call, table)),
                    Catch::Contains("4294967296 bytes on 4 ranks") && Catch::Contains("segment="));
}

TEST_CASE("each operation of the default table is right around its limits", "[group]") {
  const algorithm_table table;
  for (int kind = 0; kind < int(collective_kinds); ++kind) {
    for (const unsigned ranks : {3u, 9u}) {
      for (const std::size_t elements : {100u, 128u, 129u, 2048u, 2049u, 8193u}) {
        const model::trial t{.kind = collective_kind(kind),
                             .ranks = ranks,
                             .elements = elements,
                             .is_aliased = elements % 2 == 0};
        CHECK(problem_of(t, table) == "");
      }
    }
  }
}
