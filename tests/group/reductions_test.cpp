#include "group/reductions.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

using namespace cordma;
using namespace cordma::detail;

static_assert(element_type_of<int>() == element_type::int32);
static_assert(element_type_of<long long>() == element_type::int64);
static_assert(element_type_of<unsigned char>() == element_type::uint8);
static_assert(element_type_of<std::uint16_t>() == element_type::uint16);
static_assert(element_type_of<float>() == element_type::float32);
static_assert(element_type_of<double>() == element_type::float64);
static_assert(!reducible<bool> && !reducible<long double> && !reducible<void*>);

namespace {

template <class T>
T expected(reduction operation, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (operation == reduction::bit_and) return T(a & b);
    if (operation == reduction::bit_or) return T(a | b);
    if (operation == reduction::bit_xor) return T(a ^ b);
    if (operation == reduction::sum) return T(std::uint64_t(a) + std::uint64_t(b));
    if (operation == reduction::product) return T(std::uint64_t(a) * std::uint64_t(b));
  }
  switch (operation) {
    case reduction::sum: return T(a + b);
    case reduction::product: return T(a * b);
    case reduction::min: return std::min(a, b);
    default: return std::max(a, b);
  }
}

template <class T>
std::vector<T> samples() {
  std::vector<T> values{T(0),
                        T(1),
                        T(-1),
                        T(3),
                        std::numeric_limits<T>::max(),
                        T(17),
                        T(-5),
                        std::numeric_limits<T>::lowest()};
  for (int i = 0; i < 60; ++i) values.push_back(T(i * 37 - 900));
  return values;
}

/// Combines samples, with all operands at an offset from where they would be aligned.
template <class T>
bool is_right(reduction operation, std::size_t offset, int aliased) {
  const reducer r = reducer_of(element_type_of<T>(), operation);
  const std::vector<T> left = samples<T>();
  std::vector<T> right = left;
  std::rotate(right.begin(), right.begin() + 5, right.end());
  const std::size_t size = left.size() * sizeof(T);
  std::vector<std::byte> l(size + 16);
  std::vector<std::byte> rt(size + 16);
  std::vector<std::byte> out(size + 16);
  std::memcpy(l.data() + offset, left.data(), size);
  std::memcpy(rt.data() + offset, right.data(), size);
  std::byte* const into = (aliased == 1 ? l : aliased == 2 ? rt : out).data() + offset;
  const std::byte before = into[-1];
  const std::byte behind = into[size];
  r.combine(into, l.data() + offset, rt.data() + offset, left.size(), nullptr);
  std::vector<T> result(left.size());
  std::memcpy(result.data(), into, size);
  for (std::size_t i = 0; i < left.size(); ++i)
    if (result[i] != expected(operation, left[i], right[i])) return false;
  return r.element_bytes == sizeof(T) && into[-1] == before && into[size] == behind;
}

template <class T>
void check_all() {
  for (int operation = 0; operation < (std::is_integral_v<T> ? reductions : 4); ++operation)
    for (const std::size_t offset : {std::size_t{1}, std::size_t{3}, std::size_t{8}})
      for (int aliased = 0; aliased < 3; ++aliased)
        CHECK(is_right<T>(reduction(operation), offset, aliased));
}

}  // namespace

TEST_CASE("each operation combines each type, at any address, onto an operand as well", "[group]") {
  check_all<std::int8_t>();
  check_all<std::int16_t>();
  check_all<std::int32_t>();
  check_all<std::int64_t>();
  check_all<std::uint8_t>();
  check_all<std::uint16_t>();
  check_all<std::uint32_t>();
  check_all<std::uint64_t>();
  check_all<float>();
  check_all<double>();
}

TEST_CASE("bit operations on floating-point numbers are refused by name", "[group]") {
  for (const element_type type : {element_type::float32, element_type::float64})
    for (const reduction operation : {reduction::bit_and, reduction::bit_or, reduction::bit_xor})
      CHECK_THROWS_WITH(reducer_of(type, operation),
                        Catch::Contains(to_string(type)) && Catch::Contains(to_string(operation)));
}

TEST_CASE("type and operation have a name of their own", "[group]") {
  std::set<std::uint16_t> names;
  for (int type = 0; type < element_types; ++type)
    for (int operation = 0; operation < 4; ++operation)
      names.insert(reducer_of(element_type(type), reduction(operation)).name);
  CHECK(names.size() == 40);
  CHECK(*names.begin() > 0);
  CHECK(*names.rbegin() < 256);
}
