#include "group/model_exchange.hpp"
#include "group/reductions.hpp"

#include <catch2/catch.hpp>

#include <bit>
#include <numeric>

using namespace cordma;
using namespace cordma::detail;

namespace {

/// Memory without bytes: addresses that nobody reads.
class address_memory {
 public:
  struct snapshot {};
  local_mr_slice allocate(std::size_t size_bytes) {
    const std::uint64_t address = next_;
    next_ += size_bytes + 4096;
    return {reinterpret_cast<std::byte*>(address), size_bytes, nullptr, 0, 0};
  }
  void spoil(const local_mr_slice& /*memory*/) {}
  snapshot read(const const_local_mr_slice& /*memory*/) { return {}; }
  void write(const local_mr_slice& /*memory*/, const snapshot& /*content*/) {}
  void copy(const local_mr_slice& /*into*/, const const_local_mr_slice& /*from*/) {}
  void combine(const local_mr_slice& /*into*/, const const_local_mr_slice& /*left*/,
               const const_local_mr_slice& /*right*/) {}

 private:
  std::uint64_t next_ = std::uint64_t(1) << 20;
};

/// The cost of an operation by one algorithm, with 8 bytes in a block, or so many bytes in all.
class cost {
 public:
  cost(collective_kind kind, const char* name, unsigned ranks, std::size_t bytes = 8)
      : group_{ranks, 1, memory_}, bytes_{bytes} {
    const algorithm_table table{std::string{to_string(kind)} + '=' + name};
    const reducer sum = reducer_of(element_type::int8, reduction::sum);
    std::vector<collective_call> calls(ranks);
    for (unsigned rank = 0; rank < ranks; ++rank) {
      collective_call& call = calls[rank];
      call.kind = kind;
      call.reduction = &sum;
      fill(call, rank, ranks);
      call.check(rank, ranks);
    }
    group_.run(calls, table);
  }

  [[nodiscard]] const model::tally& of(unsigned rank) const { return group_.of(rank); }
  [[nodiscard]] std::size_t messages() const {
    std::size_t all = 0;
    for (unsigned rank = 0; rank < group_.size(); ++rank) all += of(rank).messages;
    return all;
  }
  /// Returns the most messages that followed each other.
  [[nodiscard]] unsigned time() const {
    unsigned longest = 0;
    for (unsigned rank = 0; rank < group_.size(); ++rank)
      longest = std::max(longest, of(rank).time);
    return longest;
  }
  template <class Predicate>
  [[nodiscard]] bool each(Predicate predicate) const {
    for (unsigned rank = 0; rank < group_.size(); ++rank)
      if (!predicate(rank, of(rank))) return false;
    return true;
  }

 private:
  void fill(collective_call& call, unsigned rank, unsigned ranks) {
    using enum collective_kind;
    const std::size_t all = bytes_ * ranks;
    call.blocks.each = call.received.each = bytes_;
    const auto set = [&](std::size_t in, std::size_t out) {
      call.in = memory_.allocate(in);
      call.out = memory_.allocate(out);
    };
    switch (call.kind) {
      case barrier: break;
      case broadcast: return set(0, bytes_);
      case scatter: return set(rank == 0 ? all : 0, bytes_);
      case gather: return set(bytes_, rank == 0 ? all : 0);
      case all_gather: return set(bytes_, all);
      case reduce: return set(bytes_, rank == 0 ? bytes_ : 0);
      case all_reduce:
      case scan: return set(bytes_, bytes_);
      case reduce_scatter: return set(all, bytes_);
      case all_to_all: return set(all, all);
    }
  }

  address_memory memory_;
  model::model_group<address_memory> group_;
  std::size_t bytes_;
};

/// Returns the number of times that ranks double, up to all.
unsigned doublings(unsigned ranks) { return unsigned(std::bit_width(ranks - 1)); }

}  // namespace

TEST_CASE("a barrier takes log2 p messages of each rank", "[group]") {
  using enum collective_kind;
  const unsigned ranks = GENERATE(8u, 64u, 1000u, 10000u);
  const cost c{barrier, "dissemination", ranks};
  CHECK(c.time() == doublings(ranks));
  CHECK(c.each([&](unsigned, const model::tally& t) {
    return t.messages == doublings(ranks) && t.peers().size() <= 2 * doublings(ranks);
  }));
}

TEST_CASE("trees take p - 1 messages in all, and log2 p one after the other", "[group]") {
  using enum collective_kind;
  const unsigned ranks = GENERATE(8u, 64u, 1000u, 10000u);
  const unsigned steps = doublings(ranks);
  const cost down{broadcast, "binomial", ranks};
  CHECK(down.messages() == ranks - 1);
  CHECK(down.of(0).messages == steps);
  CHECK(down.time() <= steps);
  const cost sum{reduce, "binomial", ranks};
  CHECK(sum.messages() == ranks - 1);
  CHECK(sum.time() <= steps);
  CHECK(sum.each([&](unsigned, const model::tally& t) { return t.peers().size() <= steps; }));
  const cost scattered{scatter, "binomial", ranks};
  CHECK(scattered.messages() == ranks - 1);
  CHECK(scattered.of(0).bytes == 8 * (ranks - 1));
  CHECK(scattered.of(0).messages == steps);
  const cost gathered{gather, "binomial", ranks};
  CHECK(gathered.messages() == ranks - 1);
  CHECK(gathered.of(0).peers().size() == steps);
  CHECK(gathered.time() <= steps);
}

TEST_CASE("an all-reduce by doubling takes log2 p messages, and two more of pairs", "[group]") {
  using enum collective_kind;
  const unsigned ranks = GENERATE(8u, 64u, 1000u, 10000u);
  const unsigned steps = unsigned(std::bit_width(ranks)) - 1;
  const unsigned pairs = ranks - std::bit_floor(ranks);
  const cost c{all_reduce, "recursive_doubling", ranks};
  CHECK(c.time() <= steps + (pairs != 0 ? 2 : 0));
  CHECK(c.each([&](unsigned rank, const model::tally& t) {
    const std::size_t messages = rank >= 2 * pairs ? steps : rank % 2 == 1 ? 1 : steps + 1;
    return t.messages == messages && t.bytes == 8 * messages && t.peers().size() == messages;
  }));
}

TEST_CASE("an all-reduce by Rabenseifner sends twice the message, whatever p is", "[group]") {
  using enum collective_kind;
  const unsigned ranks = GENERATE(8u, 64u, 1024u);
  const cost c{all_reduce, "rabenseifner", ranks, 8192};
  CHECK(c.time() == 2 * doublings(ranks));
  CHECK(c.each([&](unsigned, const model::tally& t) {
    return t.messages == 2 * doublings(ranks) && t.bytes == 2 * (8192 - 8192 / ranks) &&
           t.peers().size() == doublings(ranks);
  }));
  const cost one{reduce, "rabenseifner", ranks, 8192};
  CHECK(one.time() == 2 * doublings(ranks));
  CHECK(one.of(0).messages == doublings(ranks));
  CHECK(one.of(0).bytes == 8192 - 8192 / ranks);
  const cost blocks{reduce_scatter, "recursive_halving", ranks};
  CHECK(blocks.each([&](unsigned, const model::tally& t) {
    return t.messages == doublings(ranks) && t.bytes == 8 * (ranks - 1);
  }));
}

TEST_CASE("an all-gather by Bruck takes log2 p messages, with each block once", "[group]") {
  using enum collective_kind;
  const unsigned ranks = GENERATE(8u, 64u, 1000u);
  const cost c{all_gather, "bruck", ranks};
  CHECK(c.time() == doublings(ranks));
  CHECK(c.each([&](unsigned, const model::tally& t) {
    return t.messages == doublings(ranks) && t.bytes == 8 * (ranks - 1);
  }));
}

TEST_CASE("an all-gather by doubling takes log2 p messages, with each block once", "[group]") {
  using enum collective_kind;
  const unsigned ranks = GENERATE(8u, 64u, 1024u);
  const cost c{all_gather, "recursive_doubling", ranks};
  CHECK(c.time() == doublings(ranks));
  CHECK(c.each([&](unsigned, const model::tally& t) {
    return t.messages == doublings(ranks) && t.bytes == 8 * (ranks - 1);
  }));
  // Rank 1 sends its block to rank 0, and gets all from there.
  const unsigned folding = GENERATE(9u, 1000u);
  const cost folded{all_gather, "recursive_doubling", folding};
  CHECK(folded.time() <= doublings(folding) + 1);
  CHECK(folded.of(0).messages == doublings(folding));
  CHECK(folded.of(1).messages == 1);
  CHECK(folded.of(1).bytes == 8);
}

TEST_CASE("an all-to-all by Bruck takes log2 p messages, with half of the blocks each", "[group]") {
  using enum collective_kind;
  const unsigned ranks = GENERATE(8u, 64u, 300u);
  std::size_t blocks = 0;
  for (unsigned distance = 1; distance < ranks; ++distance)
    blocks += unsigned(std::popcount(distance));
  const cost c{all_to_all, "bruck", ranks};
  CHECK(c.time() == doublings(ranks));
  CHECK(c.each([&](unsigned, const model::tally& t) {
    return t.messages == doublings(ranks) && t.bytes == 8 * blocks;
  }));
}

TEST_CASE("a scan takes log2 p messages one after the other", "[group]") {
  using enum collective_kind;
  const unsigned ranks = GENERATE(8u, 64u, 1000u);
  const cost c{scan, "recursive_doubling", ranks};
  CHECK(c.time() <= doublings(ranks));
  CHECK(c.each(
      [&](unsigned rank, const model::tally& t) { return t.messages == doublings(ranks - rank); }));
}

TEST_CASE("a ring talks to neighbours only, and sends each byte once", "[group]") {
  using enum collective_kind;
  const unsigned ranks = GENERATE(8u, 64u);
  const std::size_t bytes = ranks * 1024;
  const cost sums{all_reduce, "ring", ranks, bytes};
  CHECK(sums.each([&](unsigned, const model::tally& t) {
    return t.messages == 2 * (ranks - 1) && t.bytes == 2 * (bytes - 1024) && t.peers().size() == 2;
  }));
  const cost blocks{all_gather, "ring", ranks};
  CHECK(blocks.each([&](unsigned, const model::tally& t) {
    return t.messages == ranks - 1 && t.bytes == 8 * (ranks - 1) && t.peers().size() == 2;
  }));
  const cost reduced{reduce_scatter, "ring", ranks};
  CHECK(reduced.each([&](unsigned, const model::tally& t) {
    return t.messages == ranks - 1 && t.bytes == 8 * (ranks - 1) && t.peers().size() == 2;
  }));
  const cost chain{broadcast, "chain", ranks};
  CHECK(chain.messages() == ranks - 1);
  CHECK(chain.time() == ranks - 1);
}

TEST_CASE("linear and pairwise algorithms send each block to the rank that it is for", "[group]") {
  using enum collective_kind;
  const unsigned ranks = GENERATE(8u, 64u);
  const cost blocks{all_to_all, "pairwise", ranks};
  CHECK(blocks.each([&](unsigned, const model::tally& t) {
    return t.messages == ranks - 1 && t.bytes == 8 * (ranks - 1) && t.copied == 8;
  }));
  const cost reduced{reduce_scatter, "pairwise", ranks};
  CHECK(reduced.each([&](unsigned, const model::tally& t) {
    return t.messages == ranks - 1 && t.bytes == 8 * (ranks - 1);
  }));
  CHECK(cost{scatter, "linear", ranks}.of(0).bytes == 8 * (ranks - 1));
  CHECK(cost{gather, "linear", ranks}.time() == 1);
}
