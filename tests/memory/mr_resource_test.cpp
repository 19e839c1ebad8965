#include <cordma/memory/mr_resource.hpp>

#include "support/aborts.hpp"
#include "support/held.hpp"
#include "support/loopback.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <list>
#include <numeric>
#include <string>
#include <vector>

using namespace cordma;
using test::held_by;
using test::nothing;

TEST_CASE("containers live in registered memory, and requests name their elements",
          "[memory][device]") {
  test::loopback link;
  mr_resource memory{link.allocator(test::all_access)};
  std::pmr::vector<std::uint32_t> from(1000, &memory);
  std::iota(from.begin(), from.end(), 0u);
  std::vector<std::uint32_t, mr_std_allocator<std::uint32_t>> to{
      1000, 0u, mr_std_allocator<std::uint32_t>{memory}};
  local_mr target = link.memory(4000);
  link.run(
      link.a->write(memory.slice(std::span<const std::uint32_t>{from}), target.remote_slice()));
  link.run(
      link.a->read(memory.slice(std::span{to}).first(2000), target.remote_slice().first(2000)));
  CHECK(std::equal(to.begin(), to.begin() + 500, from.begin()));
  CHECK(to[500] == 0);
  CHECK(memory.slice(std::span<std::uint32_t>{}).empty());
}

TEST_CASE("only objects of one allocation have a slice", "[memory][device]") {
  test::loopback link;
  mr_resource memory{link.allocator(test::all_access)};
  mr_resource other{link.allocator(test::all_access)};
  std::pmr::vector<char> text(20, 'x', &memory);
  const auto refused = [&](const mr_resource& by, std::span<char> part) {
    try {
      static_cast<void>(by.slice(part));
    } catch (const error& e) {
      return e.code() == errc::out_of_range;
    }
    return false;
  };
  CHECK_FALSE(refused(memory, std::span{text}.subspan(5)));
  CHECK(refused(other, std::span{text}));
  CHECK(refused(memory, {text.data(), text.size() + 1}));
  CHECK(refused(memory, {text.data() - 1, 1}));
  char elsewhere = 0;
  CHECK(refused(memory, {&elsewhere, 1}));
}

TEST_CASE("what a container gives back becomes stale, and its allocator moves with it",
          "[memory][device]") {
  test::loopback link;
  mr_allocator& from = link.allocator(test::all_access);
  mr_resource memory{from};
  {
    std::vector<int, mr_std_allocator<int>> numbers{mr_std_allocator<int>{memory}};
    numbers.assign(100, 1);
    const local_mr_slice slice = memory.slice(std::span{numbers});
    numbers.resize(10'000);  // Elsewhere now.
    CHECK(link.outcome(link.a->send(slice)).failure().code == errc::stale_slice);
    const int* const before = numbers.data();
    std::vector<int, mr_std_allocator<int>> moved{mr_std_allocator<int>{memory}};
    moved = std::move(numbers);
    CHECK(moved.data() == before);
    std::pmr::list<std::pmr::string> nodes{&memory};
    for (int n = 0; n < 100; ++n) nodes.emplace_back(std::string(100, 'x'));
    CHECK(from.statistics().in_use_bytes > 50'000);
  }
  CHECK(held_by(from) == nothing);
}

TEST_CASE("giving back what is not there is a broken contract", "[memory][device]") {
  const auto said = [](auto body) {
    const support::death seen = support::run_in_child([body] {
      test::loopback link;
      mr_resource memory{link.allocator(test::all_access)};
      body(memory, memory.allocate(100));
    });
    return seen.aborted ? seen.text : "it went on";
  };
  CHECK_THAT(said([](mr_resource& memory, void* at) {
               memory.deallocate(at, 100);
               memory.deallocate(at, 100);
             }),
             Catch::Contains("given back twice, or of another resource"));
  CHECK_THAT(said([](mr_resource& memory, void* at) {
               memory.deallocate(static_cast<char*>(at) + 16, 84);
             }),
             Catch::Contains("given back twice, or of another resource"));
  CHECK_THAT(said([](mr_resource& memory, void* at) { memory.deallocate(at, 99); }),
             Catch::Contains("another size than it was asked for"));
}
