#include <cordma/memory/slice.hpp>

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <vector>

using namespace cordma;

namespace {

/// 100 bytes that no device knows.
struct fake_memory {
  std::vector<std::byte> bytes = std::vector<std::byte>(100);
  memory_block& block = memory_block::make(
      {nullptr, verbs::access::local_write,
       [](memory_block& done, void*) noexcept { memory_block::recycle(done); }, nullptr});
  local_mr_slice slice{bytes.data(), bytes.size(), 42, block};
  ~fake_memory() { block.give_up(); }
};

template <class F>
std::error_code code_of(F f) {
  try {
    f();
  } catch (const error& e) {
    return e.code();
  }
  return {};
}

}  // namespace

TEST_CASE("a slice is a part: full, head, tail, middle, one byte, empty", "[memory][M10]") {
  fake_memory mr;
  const auto check = [&](const auto& whole) {
    const auto is = [&](const auto& part, std::size_t offset, std::size_t length) {
      CHECK(part.bytes().data() == mr.bytes.data() + offset);
      CHECK(part.size_bytes() == length);
      CHECK(part.empty() == (length == 0));
      CHECK(part.lkey() == 42);
      CHECK(part.block() == &mr.block);
      CHECK(part.generation() == mr.block.generation());
    };
    is(whole.slice(0, 100), 0, 100);
    is(whole.first(10), 0, 10);
    is(whole.last(10), 90, 10);
    is(whole.slice(40, 20), 40, 20);
    is(whole.slice(99, 1), 99, 1);
    is(whole.slice(100, 0), 100, 0);
    is(whole.slice(40, 20).slice(5, 10).last(1), 54, 1);
  };
  check(mr.slice);
  check(const_local_mr_slice{mr.slice});
}

TEST_CASE("a slice out of bounds is refused, however large its numbers", "[memory][M10]") {
  fake_memory mr;
  const remote_mr_slice remote{0x1000, 100, 7};
  constexpr std::size_t huge = std::size_t(-1);
  const auto check = [](const auto& whole) {
    CHECK(code_of([&] { static_cast<void>(whole.slice(0, 101)); }) == errc::out_of_range);
    CHECK(code_of([&] { static_cast<void>(whole.slice(101, 0)); }) == errc::out_of_range);
    CHECK(code_of([&] { static_cast<void>(whole.slice(50, 51)); }) == errc::out_of_range);
    CHECK(code_of([&] { static_cast<void>(whole.slice(50, huge)); }) == errc::out_of_range);
    CHECK(code_of([&] { static_cast<void>(whole.slice(huge, 2)); }) == errc::out_of_range);
    CHECK(code_of([&] { static_cast<void>(whole.first(101)); }) == errc::out_of_range);
    CHECK(code_of([&] { static_cast<void>(whole.last(101)); }) == errc::out_of_range);
    // A part's bounds are its own.
    CHECK(code_of([&] { static_cast<void>(whole.slice(10, 10).slice(0, 11)); }) ==
          errc::out_of_range);
  };
  check(mr.slice);
  check(const_local_mr_slice{mr.slice});
  check(remote);
}

TEST_CASE("the default slice is empty and has no memory", "[memory]") {
  const local_mr_slice none;
  CHECK(none.empty());
  CHECK(none.block() == nullptr);
  CHECK(none.slice(0, 0).empty());
  CHECK_THROWS_AS(none.slice(0, 1), error);
}

TEST_CASE("disjoint mutable slices are usable together", "[memory][M10]") {
  fake_memory mr;
  const local_mr_slice head = mr.slice.first(50);
  const local_mr_slice tail = mr.slice.last(50);
  head.bytes()[49] = std::byte{1};
  tail.bytes()[0] = std::byte{2};
  CHECK(mr.bytes[49] == std::byte{1});
  CHECK(mr.bytes[50] == std::byte{2});
  const auto both = gather(head, tail);
  static_assert(std::is_same_v<decltype(both), const std::array<const_local_mr_slice, 2>>);
  CHECK(both[1].bytes().data() == mr.bytes.data() + 50);
  static_assert(std::is_same_v<decltype(scatter(head, tail)), std::array<local_mr_slice, 2>>);
}

TEST_CASE("a remote slice can be told to a peer", "[memory]") {
  const remote_mr_slice slice{0x0102030405060708, 0x1122, 0xa1b2c3d4};
  const auto bytes = slice.encode();
  CHECK(bytes[0] == std::byte{8});
  CHECK(bytes[7] == std::byte{1});
  CHECK(bytes[8] == std::byte{0x22});
  CHECK(bytes[16] == std::byte{0xd4});
  const remote_mr_slice back = remote_mr_slice::decode(bytes);
  CHECK(back.address() == slice.address());
  CHECK(back.size_bytes() == slice.size_bytes());
  CHECK(back.rkey() == slice.rkey());
  const std::span<const std::byte> all{bytes};
  CHECK(code_of([&] { remote_mr_slice::decode(all.first(19)); }) == errc::wrong_length);
  CHECK(code_of([&] { remote_mr_slice::decode({}); }) == errc::wrong_length);
  const remote_mr_slice part = slice.slice(0x10, 8);
  CHECK(part.address() == slice.address() + 0x10);
  CHECK(part.rkey() == slice.rkey());
  CHECK(slice.last(2).address() == slice.address() + 0x1120);
}
