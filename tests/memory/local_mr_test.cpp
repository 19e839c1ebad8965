#include <cordma/memory/local_mr.hpp>

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <concepts>

using namespace cordma;

namespace {

/// A `local_mr` over bytes that no device knows.
local_mr fake(std::span<std::byte> bytes, int& released, std::uint32_t rkey = 0) {
  memory_block& block = memory_block::make({nullptr, verbs::access::local_write,
                                            [](memory_block& done, void* context) noexcept {
                                              ++*static_cast<int*>(context);
                                              memory_block::recycle(done);
                                            },
                                            &released});
  return {bytes.data(), bytes.size(), 1, rkey, block};
}

}  // namespace

TEST_CASE("moving a local_mr moves the memory, destroying it makes slices stale", "[memory][M10]") {
  std::array<std::byte, 16> bytes{};
  int released = 0;
  local_mr_slice slice;
  {
    local_mr first = fake(bytes, released, 9);
    slice = first;
    local_mr second = std::move(first);
    CHECK(first.size_bytes() == 0);  // NOLINT(bugprone-use-after-move)
    CHECK(first.slice().empty());
    CHECK(second.size_bytes() == 16);
    CHECK(second.remote_slice().rkey() == 9);
    first = std::move(second);
    CHECK(first.bytes().data() == bytes.data());
    CHECK(released == 0);
    REQUIRE(slice.block()->try_acquire(slice.generation()));
    slice.block()->release();
  }
  CHECK(released == 1);
  CHECK_FALSE(slice.block()->try_acquire(slice.generation()));
}

TEST_CASE("assigning to a local_mr releases what it had", "[memory]") {
  std::array<std::byte, 16> bytes{};
  int released = 0;
  local_mr mr = fake(bytes, released);
  mr = fake(bytes, released);
  CHECK(released == 1);
  mr.reset();
  mr.reset();
  CHECK(released == 2);
}

TEST_CASE("memory without remote access has no remote slice", "[memory]") {
  std::array<std::byte, 16> bytes{};
  int released = 0;
  const local_mr mr = fake(bytes, released);
  try {
    static_cast<void>(mr.remote_slice());
    FAIL("it has one");
  } catch (const error& e) {
    CHECK(e.code() == errc::access_denied);
  }
  static_assert(std::same_as<decltype(mr.slice()), const_local_mr_slice>);
  static_assert(!std::convertible_to<const local_mr&, local_mr_slice>);
  static_assert(std::convertible_to<local_mr&, local_mr_slice>);
}

TEST_CASE("memory that is kept outlasts its owner, whose slices are stale all the same",
          "[memory][M10]") {
  std::array<std::byte, 16> bytes{};
  int released = 0;
  local_mr owner = fake(bytes, released);
  const local_mr_slice part = owner.slice(4, 8);
  {
    local_mr kept = local_mr::keep(part);
    CHECK(kept.bytes().data() == &bytes[4]);
    CHECK(kept.size_bytes() == 8);
    const local_mr moved = std::move(kept);
    owner.reset();
    CHECK(released == 0);
    CHECK_THROWS_AS(local_mr::keep(part), error);
  }
  CHECK(released == 1);

  owner = fake(bytes, released);
  {
    const local_mr kept = local_mr::keep(owner.slice());
  }
  // A `local_mr` that goes before the owner ends nothing.
  const local_mr again = local_mr::keep(owner.slice());
  CHECK(released == 1);
}
