#include "random_operation.hpp"

#include "ranks.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/memory/local_mr.hpp>
#include <cordma/runtime/runtime.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

namespace cordma::test {
namespace {

constexpr std::byte untouched{0x5a};

std::uint32_t hash(std::uint32_t seed, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t h = seed;
  for (const std::uint32_t n : {a, b, c}) {
    h = (h ^ n) * 0x9e3779b1u;
    h ^= h >> 15;
  }
  return h;
}

/// A prime, so that no block of an operation lies in step with the numbers.
constexpr std::size_t numbers_count = 65'521;

/// Returns random numbers. Those of floating point are exact however they are combined.
template <class T>
const std::vector<T>& random_numbers(bool is_product) {
  const auto make = [](bool of_product) {
    std::mt19937_64 random{1};
    std::vector<T> all(numbers_count);
    for (T& one : all) {
      const std::uint64_t n = random();
      if constexpr (std::is_floating_point_v<T>)
        one = T(of_product ? 1 + n % 2 : n % 1000);
      else
        one = T(n);
    }
    return all;
  };
  static const std::vector<T> numbers = make(false), factors = make(true);
  return is_product ? factors : numbers;
}

/// A series of numbers, which repeat: `first` says where it begins among them.
template <class T>
class series {
 public:
  series(std::uint32_t first, bool is_product = false)
      : numbers_{random_numbers<T>(is_product)}, first_{first % numbers_count} {}

  /// Calls `f(index, numbers)` for each part of the elements `begin` to `end` that lies together.
  template <class F>
  void for_parts(std::size_t begin, std::size_t end, F f) const {
    for (std::size_t at = begin; at < end;) {
      const std::size_t from = (first_ + at) % numbers_count;
      const std::size_t count = std::min(end - at, numbers_count - from);
      f(at - begin, std::span{&numbers_[from], count});
      at += count;
    }
  }
  void copy_to(std::span<T> to, std::size_t begin = 0) const {
    for_parts(begin, begin + to.size(), [&](std::size_t at, std::span<const T> part) {
      std::memcpy(&to[at], part.data(), part.size_bytes());
    });
  }
  [[nodiscard]] bool is_in(std::span<const T> in) const {
    bool holds = true;
    for_parts(0, in.size(), [&](std::size_t at, std::span<const T> part) {
      holds = holds && std::memcmp(&in[at], part.data(), part.size_bytes()) == 0;
    });
    return holds;
  }

 private:
  const std::vector<T>& numbers_;
  const std::size_t first_;
};

template <class T>
T combined(reduction how, T a, T b) {
  if (how == reduction::min) return std::min(a, b);
  if (how == reduction::max) return std::max(a, b);
  if constexpr (std::is_floating_point_v<T>) {
    return how == reduction::sum ? a + b : a * b;
  } else {
    const auto x = std::uint64_t(a);
    const auto y = std::uint64_t(b);
    if (how == reduction::sum) return T(x + y);
    if (how == reduction::product) return T(x * y);
    if (how == reduction::bit_and) return T(x & y);
    return how == reduction::bit_or ? T(x | y) : T(x ^ y);
  }
}

/// Returns the operand of a rank.
template <class T>
series<T> operand_of(const random_operation& o, unsigned rank) {
  return {hash(o.seed, rank, 0, 1), o.how == reduction::product};
}

/// Returns elements of the first `ranks` ranks together, from the element `begin` on.
template <class T>
std::vector<T> reference(const random_operation& o, unsigned ranks, std::size_t begin,
                         std::size_t count) {
  std::vector<T> all(count);
  operand_of<T>(o, 0).copy_to(all, begin);
  for (unsigned r = 1; r < ranks; ++r)
    operand_of<T>(o, r).for_parts(
        begin, begin + count, [&](std::size_t at, std::span<const T> part) {
          T* into = &all[at];
          for (const T *one = part.data(), *end = one + part.size(); one != end; ++one, ++into)
            *into = combined(o.how, *into, *one);
        });
  return all;
}

/// The work of one rank in one operation.
struct part {
  group& g;
  const random_operation& o;
  const unsigned size = g.size();
  const unsigned rank = g.rank();
  const unsigned root = o.root % size;
  const bool is_root = rank == root;
  std::vector<std::size_t> blocks{};  ///< bytes
  std::size_t element = 1;

  explicit part(group& of, const random_operation& what, std::size_t element_bytes = 1)
      : g{of}, o{what}, element{element_bytes} {
    for (unsigned r = 0; r < size; ++r) blocks.push_back(length(r, 0));
  }
  /// Returns the bytes of a block, of which each is another if they are uneven.
  [[nodiscard]] std::size_t length(unsigned a, unsigned b) const {
    if (!o.is_uneven) return o.bytes / element * element;
    return hash(o.seed, a, b, 2) % 4 == 0
               ? 0
               : o.bytes / (1 + hash(o.seed, a, b, 3) % 4) / element * element;
  }
  [[nodiscard]] std::size_t begin_of(unsigned r) const {
    return std::reduce(blocks.begin(), blocks.begin() + r);
  }
  [[nodiscard]] std::size_t total() const { return begin_of(size); }
  [[nodiscard]] local_mr memory(std::size_t bytes) const {
    local_mr m = g.runtime().memory().allocate_zeroed(bytes + 1);
    std::memset(m.bytes().data(), int(untouched), m.size_bytes());
    return m;
  }
  void check(bool holds, const char* what) const {
    expect(holds, std::string{what} + " of rank " + std::to_string(rank) + " of " +
                      std::to_string(size) + ": " + o.to_string());
  }
  /// Returns the bytes that a rank has for another.
  [[nodiscard]] series<std::uint8_t> bytes_of(unsigned from, unsigned to) const {
    return {hash(o.seed, from, to, 4)};
  }
  void fill(const local_mr_slice& into, unsigned from, unsigned to) const {
    bytes_of(from, to).copy_to(into.as<std::uint8_t>());
  }
  void check_filled(const const_local_mr_slice& in, unsigned from, unsigned to) const {
    check(bytes_of(from, to).is_in(in.as<const std::uint8_t>()), "the bytes");
  }
  void check_end(const local_mr& m, std::size_t bytes) const {
    check(m.bytes()[bytes] == untouched, "a byte beyond those");
  }
  [[nodiscard]] std::span<const std::size_t> lengths(bool knows) const {
    return knows ? std::span<const std::size_t>{blocks} : std::span<const std::size_t>{};
  }

  task<> broadcast() const {
    local_mr data = memory(o.bytes);
    if (is_root) fill(data.first(o.bytes), root, 0);
    co_await g.broadcast(data.first(o.bytes), root);
    check_filled(data.first(o.bytes), root, 0);
    check_end(data, o.bytes);
  }
  task<> scatter() const {
    local_mr all = memory(total());
    local_mr own = memory(blocks[rank]);
    const auto block = [&](unsigned r) { return all.slice(begin_of(r), blocks[r]); };
    if (is_root)
      for (unsigned r = 0; r < size; ++r) fill(block(r), r, 0);
    const local_mr_slice in = is_root ? all.first(total()) : local_mr_slice{};
    const local_mr_slice out = is_root && o.is_aliased ? block(rank) : own.first(blocks[rank]);
    if (o.is_uneven)
      co_await g.scatter_uneven(in, lengths(is_root), out, root);
    else
      co_await g.scatter(in, out, root);
    check_filled(out, rank, 0);
    check_end(own, blocks[rank]);
  }
  task<> gather() const {
    local_mr all = memory(total());
    local_mr own = memory(blocks[rank]);
    const auto block = [&](unsigned r) { return all.slice(begin_of(r), blocks[r]); };
    const local_mr_slice in = is_root && o.is_aliased ? block(rank) : own.first(blocks[rank]);
    const local_mr_slice out = is_root ? all.first(total()) : local_mr_slice{};
    fill(in, rank, 0);
    if (o.is_uneven)
      co_await g.gather_uneven(in, out, lengths(is_root), root);
    else
      co_await g.gather(in, out, root);
    for (unsigned r = 0; is_root && r < size; ++r) check_filled(block(r), r, 0);
    check_end(all, total());
  }
  task<> all_gather() const {
    local_mr all = memory(total());
    local_mr own = memory(blocks[rank]);
    const auto block = [&](unsigned r) { return all.slice(begin_of(r), blocks[r]); };
    const local_mr_slice in = o.is_aliased ? block(rank) : own.first(blocks[rank]);
    fill(in, rank, 0);
    if (o.is_uneven)
      co_await g.all_gather_uneven(in, all.first(total()), blocks);
    else
      co_await g.all_gather(in, all.first(total()));
    for (unsigned r = 0; r < size; ++r) check_filled(block(r), r, 0);
    check_end(all, total());
  }
  task<> all_to_all() const {
    std::vector<std::size_t> sent;
    std::vector<std::size_t> received;
    for (unsigned r = 0; r < size; ++r) {
      sent.push_back(length(rank, r));
      received.push_back(length(r, rank));
    }
    const std::size_t sent_bytes = std::reduce(sent.begin(), sent.end());
    const std::size_t received_bytes = std::reduce(received.begin(), received.end());
    local_mr from = memory(sent_bytes);
    local_mr into = memory(received_bytes);
    const bool is_same = o.is_aliased && !o.is_uneven;
    std::size_t at = 0;
    for (unsigned r = 0; r < size; at += sent[r++]) fill(from.slice(at, sent[r]), rank, r);
    const local_mr_slice out = is_same ? from.first(sent_bytes) : into.first(received_bytes);
    if (o.is_uneven)
      co_await g.all_to_all_uneven(from.first(sent_bytes), sent, out, received);
    else
      co_await g.all_to_all(from.first(sent_bytes), out);
    at = 0;
    for (unsigned r = 0; r < size; at += received[r++])
      check_filled(out.slice(at, received[r]), r, rank);
    check_end(from, sent_bytes);
    check_end(into, received_bytes);
  }
  task<> by_tag() const {
    local_mr out = memory(o.bytes);
    local_mr in = memory(o.bytes);
    const unsigned next = (rank + 1) % size;
    const unsigned last = (rank + size - 1) % size;
    fill(out.first(o.bytes), rank, next);
    const auto [ignored, got] = co_await when_all(g.send(out.first(o.bytes), next, o.seed),
                                                  g.receive(in.slice(), last, o.seed));
    check(got.from == last && got.tag == o.seed && got.size_bytes == o.bytes, "the head");
    check_filled(in.first(o.bytes), last, rank);
    check_end(in, o.bytes);
  }

  template <class T>
  void check_values(const const_local_mr_slice& in, unsigned ranks, std::size_t first) const {
    const std::vector<T> right = reference<T>(o, ranks, first, in.size_bytes() / sizeof(T));
    const bool holds =
        right.empty() || std::memcmp(in.bytes().data(), right.data(), in.size_bytes()) == 0;
    check(holds, "the values");
  }
  template <class T>
  task<> reduce() const {
    const bool has_blocks = o.kind == collective_kind::reduce_scatter;
    const std::size_t in_bytes = has_blocks ? total() : length(0, 0);
    const std::size_t out_bytes = has_blocks ? blocks[rank] : in_bytes;
    local_mr from = memory(in_bytes);
    local_mr into = memory(out_bytes);
    operand_of<T>(o, rank).copy_to(from.first(in_bytes).template as<T>());
    const std::size_t first = has_blocks ? begin_of(rank) : 0;
    const local_mr_slice in = from.first(in_bytes);
    const local_mr_slice out = o.is_aliased ? from.slice(first, out_bytes) : into.first(out_bytes);
    switch (o.kind) {
      case collective_kind::reduce:
        co_await g.reduce<T>(in, is_root ? out : local_mr_slice{}, o.how, root);
        break;
      case collective_kind::all_reduce: co_await g.all_reduce<T>(in, out, o.how); break;
      case collective_kind::scan: co_await g.scan<T>(in, out, o.how); break;
      default:
        if (o.is_uneven)
          co_await g.reduce_scatter_uneven<T>(in, blocks, out, o.how);
        else
          co_await g.reduce_scatter<T>(in, out, o.how);
    }
    if (o.kind != collective_kind::reduce || is_root)
      check_values<T>(out, o.kind == collective_kind::scan ? rank + 1 : size, first / sizeof(T));
    check_end(from, in_bytes);
    check_end(into, out_bytes);
  }
};

template <class T>
task<> reduce_of(group& g, const random_operation& o) {
  const part own{g, o, sizeof(T)};
  co_await own.reduce<T>();
}

task<> reduce_of_type(group& g, const random_operation& o) {
  switch (o.type) {
    case element_type::int8: return reduce_of<std::int8_t>(g, o);
    case element_type::int16: return reduce_of<std::int16_t>(g, o);
    case element_type::int32: return reduce_of<std::int32_t>(g, o);
    case element_type::int64: return reduce_of<std::int64_t>(g, o);
    case element_type::uint8: return reduce_of<std::uint8_t>(g, o);
    case element_type::uint16: return reduce_of<std::uint16_t>(g, o);
    case element_type::uint32: return reduce_of<std::uint32_t>(g, o);
    case element_type::uint64: return reduce_of<std::uint64_t>(g, o);
    case element_type::float32: return reduce_of<float>(g, o);
    case element_type::float64: break;
  }
  return reduce_of<double>(g, o);
}

task<> move_bytes(group& g, const random_operation& o) {
  const part own{g, o};
  if (o.is_by_tag) co_return co_await own.by_tag();
  switch (o.kind) {
    case collective_kind::broadcast: co_return co_await own.broadcast();
    case collective_kind::scatter: co_return co_await own.scatter();
    case collective_kind::gather: co_return co_await own.gather();
    case collective_kind::all_gather: co_return co_await own.all_gather();
    case collective_kind::all_to_all: co_return co_await own.all_to_all();
    default: co_return co_await g.barrier();
  }
}

bool is_reduction(collective_kind k) {
  return k == collective_kind::reduce || k == collective_kind::all_reduce ||
         k == collective_kind::reduce_scatter || k == collective_kind::scan;
}

std::size_t draw_bytes(std::mt19937& numbers, std::size_t near) {
  constexpr std::array<std::size_t, 8> switches{256, 4096, 16'384, 65'536, 1, 8, 100, 262'144};
  const auto below = [&](std::size_t n) { return std::size_t(numbers()) % n; };
  switch (below(8)) {
    case 0: return 0;
    case 1: return 1 + below(16);
    case 2:
    case 3: return near + below(17) - 8;
    case 4: return switches[below(4)] + below(17) - 8;
    case 5: return 1 + below(3000);
    case 6: return below(6) == 0 ? switches[below(8)] + below(1000) : 8;
    default: return 8 * (1 + below(64));
  }
}

}  // namespace

random_operation random_operation::draw(std::mt19937& numbers, std::size_t near) {
  random_operation o;
  const unsigned kind = unsigned(numbers()) % (detail::collective_kinds + 2);
  o.is_by_tag = kind >= detail::collective_kinds;
  o.kind = o.is_by_tag ? collective_kind::barrier : collective_kind{std::uint8_t(kind)};
  o.is_uneven = numbers() % 3 == 0;
  o.is_aliased = numbers() % 2 == 0;
  o.bytes = std::min(draw_bytes(numbers, near), longest);
  o.root = unsigned(numbers());
  o.type = element_type{std::uint8_t(numbers() % 10)};
  const bool is_real = o.type >= element_type::float32;
  o.how = reduction{std::uint8_t(numbers() % (is_real ? 4 : 7))};
  o.seed = std::uint32_t(numbers());
  // The elements of a rank may overlap neither way: those of no blocks are all alike.
  if (is_reduction(o.kind) && o.kind != collective_kind::reduce_scatter) o.is_uneven = false;
  return o;
}

std::string random_operation::to_string() const {
  return std::string{is_by_tag ? "by tag" : detail::to_string(kind)} +
         (is_uneven ? ", uneven" : "") + (is_aliased ? ", in place" : "") + ", " +
         std::to_string(bytes) + " bytes, root " + std::to_string(root) + ", type " +
         std::to_string(int(type)) + ", reduction " + std::to_string(int(how)) + ", seed " +
         std::to_string(seed);
}

task<> random_operation::run(group& g) const {
  if (!is_by_tag && is_reduction(kind)) return reduce_of_type(g, *this);
  return move_bytes(g, *this);
}

}  // namespace cordma::test
