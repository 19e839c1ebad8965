#include "collective_run.hpp"

#include <numeric>

namespace cordma::test {
namespace {

using numbers = std::span<std::int64_t>;

/// Registered memory of numbers.
class number_block {
 public:
  number_block(runtime& rt, std::size_t count)
      : memory_{rt.memory().allocate_zeroed(std::max<std::size_t>(count, 1) * 8)}, count_{count} {}
  [[nodiscard]] local_mr_slice slice() { return memory_.first(count_ * 8); }
  [[nodiscard]] numbers values() { return slice().as<std::int64_t>(); }

 private:
  local_mr memory_;
  std::size_t count_;
};

/// Runs one operation on one rank and compares the result.
class collective_run {
 public:
  collective_run(const cast& all, group& g, const collective_call& c) : all_{all}, g_{g}, c_{c} {}

  task<> run() {
    switch (c_.kind) {
      case collective::barrier: return g_.barrier();
      case collective::broadcast: return broadcast();
      case collective::scatter: return scatter();
      case collective::gather: return gather();
      case collective::all_gather: return all_gather();
      case collective::all_gather_uneven: return all_gather_uneven();
      case collective::all_to_all: return all_to_all();
      case collective::reduce: return reduce();
      case collective::all_reduce: return all_reduce();
      case collective::reduce_scatter: return reduce_scatter();
      case collective::scan: return scan();
      case collective::ring: return ring();
      case collective::scatter_uneven: return scatter_uneven();
      case collective::gather_uneven: return gather_uneven();
      case collective::all_to_all_uneven: return all_to_all_uneven();
      case collective::reduce_scatter_uneven: return reduce_scatter_uneven();
      case collective::from_any: return from_any();
    }
    std::terminate();
  }

 private:
  [[nodiscard]] number_block own(std::size_t count) const {
    number_block made{g_.runtime(), count};
    for (std::size_t i = 0; i < count; ++i) made.values()[i] = c_.value(g_.rank(), i);
    return made;
  }
  [[nodiscard]] number_block empty(std::size_t count) const { return {g_.runtime(), count}; }
  /// Compares the element number i with `expected(i)`.
  template <class Expected>
  void check(numbers seen, Expected expected) const {
    for (std::size_t i = 0; i < seen.size(); ++i)
      all_.require(seen[i] == expected(i), "a collective operation: a wrong result");
  }
  /// Checks blocks of `count` elements, of which the one of rank r is that rank's own.
  void check_gathered(numbers seen) const {
    check(seen, [&](std::size_t i) { return c_.value(unsigned(i / c_.count), i % c_.count); });
  }
  /// Returns the elements of each rank's block in an uneven operation.
  [[nodiscard]] std::vector<std::size_t> uneven() const {
    std::vector<std::size_t> counts;
    for (unsigned r = 0; r < g_.size(); ++r) counts.push_back(c_.count_of(r));
    return counts;
  }
  static std::vector<std::size_t> sizes_of(std::vector<std::size_t> counts) {
    for (std::size_t& one : counts) one *= 8;
    return counts;
  }
  static std::size_t sum_of(const std::vector<std::size_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }
  /// Returns where this rank's block of an uneven operation begins.
  [[nodiscard]] std::size_t own_begin() const {
    std::size_t begin = 0;
    for (unsigned r = 0; r < g_.rank(); ++r) begin += c_.count_of(r);
    return begin;
  }
  [[nodiscard]] bool is_root() const { return g_.rank() == c_.root; }
  [[nodiscard]] std::size_t all_count() const { return c_.count * g_.size(); }

  task<> broadcast() {
    number_block data = own(c_.count);
    co_await g_.broadcast(data.slice(), c_.root);
    check(data.values(), [&](std::size_t i) { return c_.value(c_.root, i); });
  }
  task<> scatter() {
    number_block in = own(is_root() ? all_count() : 0), out = empty(c_.count);
    co_await g_.scatter(in.slice(), out.slice(), c_.root);
    check(out.values(), [&](std::size_t i) { return c_.value(c_.root, g_.rank() * c_.count + i); });
  }
  task<> gather() {
    number_block in = own(c_.count), out = empty(is_root() ? all_count() : 0);
    co_await g_.gather(in.slice(), out.slice(), c_.root);
    check_gathered(out.values());
  }
  task<> all_gather() {
    number_block in = own(c_.count), out = empty(all_count());
    co_await g_.all_gather(in.slice(), out.slice());
    check_gathered(out.values());
  }
  /// Checks uneven blocks, of which the one of rank r is that rank's own.
  void check_gathered_uneven(numbers seen) const {
    std::size_t begin = 0;
    for (unsigned r = 0; r < g_.size(); begin += c_.count_of(r), ++r) {
      check(seen.subspan(begin, c_.count_of(r)), [&](std::size_t i) { return c_.value(r, i); });
    }
  }
  task<> all_gather_uneven() {
    const std::vector<std::size_t> sizes = sizes_of(uneven());
    number_block in = own(c_.count_of(g_.rank())), out = empty(sum_of(uneven()));
    co_await g_.all_gather_uneven(in.slice(), out.slice(), sizes);
    check_gathered_uneven(out.values());
  }
  task<> scatter_uneven() {
    std::vector<std::size_t> sizes;
    if (is_root()) sizes = sizes_of(uneven());
    number_block in = own(is_root() ? sum_of(uneven()) : 0), out = empty(c_.count_of(g_.rank()));
    co_await g_.scatter_uneven(in.slice(), sizes, out.slice(), c_.root);
    check(out.values(), [&](std::size_t i) { return c_.value(c_.root, own_begin() + i); });
  }
  task<> gather_uneven() {
    std::vector<std::size_t> sizes;
    if (is_root()) sizes = sizes_of(uneven());
    number_block in = own(c_.count_of(g_.rank())), out = empty(is_root() ? sum_of(uneven()) : 0);
    co_await g_.gather_uneven(in.slice(), out.slice(), sizes, c_.root);
    if (is_root()) check_gathered_uneven(out.values());
  }
  /// Elements that a rank gives to another one.
  [[nodiscard]] std::size_t given(unsigned from, unsigned to) const {
    return (c_.count + from + 2 * std::size_t{to}) % (c_.count + 1);
  }
  task<> all_to_all_uneven() {
    std::vector<std::size_t> sent, received;
    for (unsigned r = 0; r < g_.size(); ++r) {
      sent.push_back(given(g_.rank(), r));
      received.push_back(given(r, g_.rank()));
    }
    const std::vector<std::size_t> sent_sizes = sizes_of(sent), received_sizes = sizes_of(received);
    number_block in = own(sum_of(sent)), out = empty(sum_of(received));
    co_await g_.all_to_all_uneven(in.slice(), sent_sizes, out.slice(), received_sizes);
    std::size_t begin = 0;
    for (unsigned from = 0; from < g_.size(); begin += received[from], ++from) {
      std::size_t there = 0;
      for (unsigned to = 0; to < g_.rank(); ++to) there += given(from, to);
      check(out.values().subspan(begin, received[from]),
            [&](std::size_t i) { return c_.value(from, there + i); });
    }
  }
  task<> all_to_all() {
    number_block in = own(all_count()), out = empty(all_count());
    co_await g_.all_to_all(in.slice(), out.slice());
    check(out.values(), [&](std::size_t i) {
      return c_.value(unsigned(i / c_.count), g_.rank() * c_.count + i % c_.count);
    });
  }
  task<> reduce() {
    number_block in = own(c_.count), out = empty(is_root() ? c_.count : 0);
    co_await g_.reduce<std::int64_t>(in.slice(), out.slice(), reduction::sum, c_.root);
    check(out.values(), [&](std::size_t i) { return c_.sum(g_.size(), i); });
  }
  task<> all_reduce() {
    number_block data = own(c_.count);
    co_await g_.all_reduce<std::int64_t>(data.slice(), data.slice(), reduction::sum);
    check(data.values(), [&](std::size_t i) { return c_.sum(g_.size(), i); });
  }
  task<> reduce_scatter() {
    number_block in = own(all_count()), out = empty(c_.count);
    co_await g_.reduce_scatter<std::int64_t>(in.slice(), out.slice(), reduction::sum);
    check(out.values(), [&](std::size_t i) { return c_.sum(g_.size(), g_.rank() * c_.count + i); });
  }
  task<> reduce_scatter_uneven() {
    const std::vector<std::size_t> sizes = sizes_of(uneven());
    number_block in = own(sum_of(uneven())), out = empty(c_.count_of(g_.rank()));
    co_await g_.reduce_scatter_uneven<std::int64_t>(in.slice(), sizes, out.slice(), reduction::sum);
    check(out.values(), [&](std::size_t i) { return c_.sum(g_.size(), own_begin() + i); });
  }
  task<> scan() {
    number_block in = own(c_.count), out = empty(c_.count);
    co_await g_.scan<std::int64_t>(in.slice(), out.slice(), reduction::sum);
    check(out.values(), [&](std::size_t i) { return c_.sum(g_.rank() + 1, i); });
  }
  /// Each rank sends to the next and receives from the one before.
  task<> ring() {
    const unsigned next = (g_.rank() + 1) % g_.size();
    const unsigned before = (g_.rank() + g_.size() - 1) % g_.size();
    const auto tag = std::uint32_t(c_.salt);
    number_block in = own(c_.count), out = empty(c_.count);
    co_await when_all(g_.send(in.slice(), next, tag), g_.receive(out.slice(), before, tag));
    check(out.values(), [&](std::size_t i) { return c_.value(before, i); });
  }
  task<> receive_from_any(std::uint32_t tag) {
    std::vector<bool> has_come(g_.size());
    number_block out = empty(c_.count);
    for (unsigned n = 0; n < g_.size(); ++n) {
      const group::message got = co_await g_.receive(out.slice(), {}, tag);
      all_.require(got.tag == tag && got.size_bytes == c_.count * 8 && !has_come[got.from],
                   "a message from any rank: another one");
      has_come[got.from] = true;
      check(out.values(), [&](std::size_t i) { return c_.value(got.from, i); });
    }
  }
  task<> from_any() {
    const auto tag = std::uint32_t(c_.salt);
    number_block in = own(c_.count);
    if (is_root()) {
      co_await when_all(g_.send(in.slice(), c_.root, tag), receive_from_any(tag));
    } else {
      co_await g_.send(in.slice(), c_.root, tag);
    }
  }

  const cast& all_;
  group& g_;
  const collective_call& c_;
};

}  // namespace

collective_call any_collective(const cast& all, unsigned ranks) {
  return {.kind = collective(all.w.random(std::uint64_t(collective::last))),
          .count = any_part(all.w, all.w.random(7) == 0 ? 4 * kib : 256).length,
          .root = unsigned(all.w.random(ranks - 1)),
          .salt = std::int64_t(all.w.random(1'000'000))};
}

task<> run_collective(const cast& all, group& g, collective_call c) {
  collective_run run{all, g, c};
  co_await run.run();
}

task<> must_run_collective(const cast& all, group& g, collective_call c) {
  const auto ended = co_await as_result(run_collective(all, g, c));
  if (!ended.has_failure()) co_return;
  all.w.fail("collective " + std::to_string(int(c.kind)) + ", " + std::to_string(c.count) +
             " elements, root " + std::to_string(c.root) + ", rank " + std::to_string(g.rank()) +
             " of " + std::to_string(g.size()) + ": " + ended.failure().to_string());
}

}  // namespace cordma::test
