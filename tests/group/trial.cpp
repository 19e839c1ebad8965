#include "group/trial.hpp"

#include <array>

namespace model {
namespace {

bool is_reduction(collective_kind kind) {
  return kind == collective_kind::reduce || kind == collective_kind::all_reduce ||
         kind == collective_kind::reduce_scatter || kind == collective_kind::scan;
}

reducer reduction_of(const trial& t) {
  return t.own != nullptr ? *t.own : reducer_of(t.type, t.operation);
}

/// The data that each rank gives and should get.
struct data {
  std::vector<std::vector<std::byte>> in;
  std::vector<std::vector<std::byte>> out;
};

using bytes = std::vector<std::byte>;

/// The numbers of splitmix64: quick also where nothing is optimized.
class random_words {
 public:
  explicit random_words(std::uint64_t seed) noexcept : state_{seed} {}
  std::uint64_t operator()() noexcept {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

bytes operand(const trial& t, unsigned rank, std::size_t size_bytes) {
  random_words random{t.seed + 31 * rank + 7};
  bytes made(size_bytes);
  if (!t.values.empty()) {
    for (std::size_t i = 0; i < size_bytes; i += sizeof(float))
      std::memcpy(&made[i], &t.values[rank], sizeof(float));
    return made;
  }
  // Small whole numbers, for floats as well: sums and products of them are exact.
  const bool is_float = t.type >= element_type::float32;
  for (std::size_t i = 0; i < size_bytes; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(&made[i], &word, std::min(sizeof word, size_bytes - i));
  }
  if (!is_reduction(t.kind) || !is_float) return made;
  for (std::size_t i = 0; i + (t.type == element_type::float32 ? 4 : 8) <= size_bytes;) {
    const int value = 1 + int(random() % 2);
    const float f = float(value);
    const double d = value;
    if (t.type == element_type::float32) std::memcpy(&made[i], &f, sizeof f), i += sizeof f;
    if (t.type == element_type::float64) std::memcpy(&made[i], &d, sizeof d), i += sizeof d;
  }
  return made;
}

bytes part(const bytes& all, std::size_t offset, std::size_t length) {
  return {all.begin() + std::ptrdiff_t(offset), all.begin() + std::ptrdiff_t(offset + length)};
}

bytes joined(const std::vector<bytes>& parts) {
  bytes all;
  for (const bytes& p : parts) all.insert(all.end(), p.begin(), p.end());
  return all;
}

class sums {
 public:
  explicit sums(const trial& t) : reduction_{reduction_of(t)} {}
  bytes of(const std::vector<bytes>& operands, unsigned count) const {
    bytes sum = operands[0];
    for (unsigned i = 1; i < count; ++i)
      reduction_.combine(sum.data(), sum.data(), operands[i].data(),
                         sum.size() / reduction_.element_bytes, nullptr);
    return sum;
  }

 private:
  reducer reduction_;
};

std::size_t element_bytes(const trial& t) {
  return is_reduction(t.kind) ? reduction_of(t).element_bytes : 1;
}

std::size_t offset_of(const trial& t, unsigned rank) {
  std::size_t offset = 0;
  for (unsigned r = 0; r < rank; ++r) offset += t.block_bytes(t.root, r);
  return offset;
}

data data_of(const trial& t) {
  const unsigned n = t.ranks;
  const std::size_t whole = t.elements * element_bytes(t);
  const std::size_t blocks = offset_of(t, n);
  data d{std::vector<bytes>(n), std::vector<bytes>(n)};
  for (unsigned r = 0; r < n; ++r) {
    std::size_t size = whole;
    if (t.kind == collective_kind::barrier) size = 0;
    if (t.kind == collective_kind::gather || t.kind == collective_kind::all_gather)
      size = t.block_bytes(t.root, r);
    if (t.kind == collective_kind::scatter) size = r == t.root ? blocks : 0;
    if (t.kind == collective_kind::reduce_scatter) size = blocks;
    if (t.kind == collective_kind::all_to_all) {
      size = 0;
      for (unsigned to = 0; to < n; ++to) size += t.block_bytes(r, to);
    }
    d.in[r] = operand(t, r, size);
  }
  for (unsigned r = 0; r < n; ++r) {
    bytes& out = d.out[r];
    const std::size_t own = t.block_bytes(t.root, r);
    switch (t.kind) {
      case collective_kind::barrier: break;
      case collective_kind::broadcast: out = d.in[t.root]; break;
      case collective_kind::scatter: out = part(d.in[t.root], offset_of(t, r), own); break;
      case collective_kind::gather: out = r == t.root ? joined(d.in) : bytes{}; break;
      case collective_kind::all_gather: out = joined(d.in); break;
      case collective_kind::reduce: out = r == t.root ? sums{t}.of(d.in, n) : bytes{}; break;
      case collective_kind::all_reduce: out = sums{t}.of(d.in, n); break;
      case collective_kind::scan: out = sums{t}.of(d.in, r + 1); break;
      case collective_kind::reduce_scatter:
        out = part(sums{t}.of(d.in, n), offset_of(t, r), own);
        break;
      case collective_kind::all_to_all:
        for (unsigned from = 0; from < n; ++from) {
          std::size_t offset = 0;
          for (unsigned to = 0; to < r; ++to) offset += t.block_bytes(from, to);
          const bytes block = part(d.in[from], offset, t.block_bytes(from, r));
          out.insert(out.end(), block.begin(), block.end());
        }
        break;
    }
  }
  return d;
}

/// The arguments of all ranks, and the memory that they lie in.
struct arguments {
  std::vector<collective_call> calls;
  std::vector<std::vector<std::size_t>> lists;
};

/// Returns memory of the longer of two arguments, and that of the shorter within it.
void fill_arguments(const trial& t, unsigned rank, const data& d, byte_memory& memory,
                    collective_call& call) {
  const bytes& in = d.in[rank];
  const std::size_t out_bytes = d.out[rank].size();
  if (t.kind == collective_kind::broadcast) {
    call.out = memory.allocate(out_bytes);
    if (rank == t.root) memory.write(call.out, in);
    return;
  }
  const bool is_aliased = t.is_aliased && !in.empty() && out_bytes != 0;
  if (!is_aliased) {
    const local_mr_slice given = memory.allocate(in.size());
    memory.write(given, in);
    call.in = given;
    call.out = memory.allocate(out_bytes);
    return;
  }
  const local_mr_slice longer = memory.allocate(std::max(in.size(), out_bytes));
  const std::size_t offset = in.size() == out_bytes ? 0 : offset_of(t, rank);
  const local_mr_slice given = in.size() < out_bytes ? longer.slice(offset, in.size()) : longer;
  memory.write(given, in);
  call.in = given;
  call.out = out_bytes < in.size() ? longer.slice(offset, out_bytes) : longer;
}

arguments arguments_of(const trial& t, const data& d, const reducer& reduction,
                       byte_memory& memory) {
  arguments made{std::vector<collective_call>(t.ranks), {}};
  made.lists.reserve(2 * t.ranks);
  for (unsigned rank = 0; rank < t.ranks; ++rank) {
    collective_call& call = made.calls[rank];
    call.kind = t.kind;
    call.root = t.root;
    call.is_uneven = t.is_uneven;
    call.is_reproducible = t.is_reproducible;
    if (is_reduction(t.kind)) call.reduction = &reduction;
    fill_arguments(t, rank, d, memory, call);
    const bool is_rooted = t.kind == collective_kind::scatter || t.kind == collective_kind::gather;
    const bool is_to_all = t.kind == collective_kind::all_to_all;
    call.blocks.each = call.received.each = t.block_bytes(t.root, rank);
    if (!t.is_uneven || (is_rooted && rank != t.root)) continue;
    std::vector<std::size_t>& sent = made.lists.emplace_back();
    std::vector<std::size_t>& received = made.lists.emplace_back();
    for (unsigned other = 0; other < t.ranks; ++other) {
      sent.push_back(t.block_bytes(is_to_all ? rank : t.root, other));
      received.push_back(t.block_bytes(other, rank));
    }
    call.blocks = {0, sent};
    if (is_to_all) call.received = {0, received};
  }
  return made;
}

}  // namespace

std::size_t trial::block_bytes(unsigned from, unsigned to) const {
  const std::size_t each = elements * element_bytes(*this);
  if (!is_uneven || kind == collective_kind::broadcast) return each;
  // Some are empty, and some are longer than the others.
  const unsigned number = kind == collective_kind::all_to_all ? 5 * from + 3 * to : 3 * to;
  return each * ((number + seed) % 4);
}

std::string trial::to_string() const {
  return std::string{cordma::detail::to_string(kind)} + " of " + std::to_string(elements) +
         " elements (" + cordma::detail::to_string(type) + ", " +
         cordma::detail::to_string(operation) + ") on " + std::to_string(ranks) + " ranks, root " +
         std::to_string(root) + (is_aliased ? ", in place" : "") + (is_uneven ? ", uneven" : "") +
         ", seed " + std::to_string(seed);
}

namespace {

/// All that a trial needs to run once.
struct prepared {
  explicit prepared(const trial& t)
      : reduction{reduction_of(t)},
        given{data_of(t)},
        made{arguments_of(t, given, reduction, memory)},
        group{t.ranks, t.seed, memory, t.hosts} {}
  reducer reduction;
  byte_memory memory{&reduction};
  data given;
  arguments made;
  model_group<byte_memory> group;
};

std::vector<bytes> results_of(const trial& t, const algorithm_table& table, prepared& p) {
  for (unsigned rank = 0; rank < t.ranks; ++rank) p.made.calls[rank].check(rank, t.ranks);
  p.group.run(p.made.calls, table);
  if (!p.memory.is_intact()) throw mistake{"memory beside an argument was written"};
  std::vector<bytes> results;
  for (unsigned rank = 0; rank < t.ranks; ++rank) {
    const collective_call& call = p.made.calls[rank];
    if (!t.is_aliased && t.kind != collective_kind::broadcast &&
        p.memory.read(call.in) != p.given.in[rank])
      throw mistake{"the input of rank " + std::to_string(rank) + " changed"};
    results.push_back(p.memory.read(call.out));
  }
  return results;
}

}  // namespace

std::vector<std::vector<std::byte>> results_of(const trial& t, const algorithm_table& table) {
  prepared p{t};
  return results_of(t, table, p);
}

std::string problem_of_failures(const trial& t, const algorithm_table& table) {
  for (std::size_t events = 0;; events += 1 + events / 8) {
    prepared p{t};
    p.group.fail_after(events);
    try {
      const std::size_t failed = p.group.run(p.made.calls, table);
      if (failed == 0 && events == 0) return t.to_string() + ": nobody failed";
      if (failed == 0) return {};
    } catch (const std::exception& e) {
      return t.to_string() + ", failing after " + std::to_string(events) + " events: " + e.what();
    }
    if (!p.memory.is_intact()) return t.to_string() + ": memory beside an argument was written";
  }
}

std::string problem_of_destruction(const trial& t, const algorithm_table& table) {
  for (std::size_t events = 0;; events += 1 + events / 8) {
    prepared p{t};
    const bool has_ended = p.group.run_for(events, p.made.calls, table);
    if (p.group.posted() != 0)
      return t.to_string() + ": transfers are left after " + std::to_string(events) + " events";
    if (has_ended) return {};
  }
}

std::uint64_t allocations_of(const trial& t, const algorithm_table& table) {
  prepared first{t};
  first.group.run(first.made.calls, table);
  prepared warm{t};
  warm.group.run(warm.made.calls, table);
  return warm.group.allocations();
}

unsigned ended_early(const trial& t, unsigned last, const algorithm_table& table) {
  prepared p{t};
  p.group.begin_last(last);
  p.group.run(p.made.calls, table);
  return p.group.ended_early();
}

std::string problem_of(const trial& t, const algorithm_table& table) {
  try {
    prepared p{t};
    const std::vector<bytes> results = results_of(t, table, p);
    for (unsigned rank = 0; rank < t.ranks; ++rank)
      if (results[rank] != p.given.out[rank])
        return t.to_string() + ": rank " + std::to_string(rank) + " has a wrong result";
  } catch (const std::exception& e) {
    return t.to_string() + ": " + e.what();
  }
  return {};
}

std::string problem_of(collective_kind kind, const std::string& name, const std::string& changes) {
  const std::string text =
      std::string{cordma::detail::to_string(kind)} + '=' + name + ' ' + changes;
  const algorithm_table table{text};
  const algorithm* const wanted = table.rows()[0].chosen;
  const bool has_blocks = !is_reduction(kind) && kind != collective_kind::broadcast;
  unsigned seed = 0;
  for (unsigned ranks = 1; ranks <= 17; ++ranks) {
    const std::array<std::size_t, 8> sizes{0, 1, 31, 32, 33, 70, ranks - 1, 32 * ranks + 5};
    // All sizes on a few ranks; on more ranks four of them, each time others.
    for (std::size_t i = 0; i < (ranks <= 4 ? 2 * sizes.size() : 4); ++i) {
      ++seed;
      const std::size_t elements = sizes[(ranks <= 4 ? i / 2 : i + 3 * ranks) % sizes.size()];
      trial t{.kind = kind,
              .ranks = ranks,
              .elements = has_blocks || kind == collective_kind::reduce_scatter
                              ? std::min<std::size_t>(elements, 70)
                              : elements,
              .root = seed % ranks,
              .is_aliased = i % 2 == 1,
              .seed = seed};
      const bool may_be_uneven = !t.is_aliased || kind != collective_kind::all_to_all;
      t.is_uneven = wanted->takes_uneven && may_be_uneven && seed % 3 == 0;
      if (std::string problem = problem_of(t, table); !problem.empty()) return problem;
    }
  }
  return {};
}

}  // namespace model
