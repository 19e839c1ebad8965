// Every operation, of every size, in every mode, wherever the two ends are: what a pair does never
// stands still.
#include "pair.hpp"
#include "watch.hpp"

#include <support/device.hpp>
#include <support/soak.hpp>
#include <support/two_hosts.hpp>

#include <catch2/catch.hpp>

#include <csignal>
#include <iostream>
#include <map>
#include <set>
#include <tuple>

using namespace walk;
using namespace std::chrono_literals;

namespace {

world world_here() {
  world here{.settings = {setting::one_thread, setting::two_threads, setting::two_processes}};
  if (!cordma::test::is_soft()) {
    here.size_max = std::size_t{8} << 20;
    here.walk_bytes_max = here.size_max;
    here.depth_max = 16;
    return here;
  }
  here.settings.push_back(setting::tcp_link);
  const std::string why_not = cordma::test::why_no_hosts();
  if (why_not.empty()) {
    here.settings.push_back(setting::two_hosts);
  } else {
    std::cout << "no walks between two hosts: " << why_not << '\n';
  }
  return here;
}

/// Heartbeats come every 20 ms, and nothing else of a pair waits for a timer: what a busy machine
/// takes is all that is left. The guest emulates its processor.
std::chrono::milliseconds patience() { return cordma::test::is_soft() ? 5s : 60s; }

}  // namespace

TEST_CASE("walks are drawn so that each mode in each place, each size and each deed is met",
          "[walk]") {
  const world all{.settings = {setting::one_thread, setting::two_threads, setting::two_processes,
                               setting::tcp_link, setting::two_hosts}};
  const std::vector<cell> walks = draw(all, 1000, 7);
  std::map<std::tuple<setting, cordma::completion_mode>, unsigned> corners;
  std::map<deed, unsigned> deeds;
  std::set<std::size_t> sizes;
  std::set<std::uint32_t> numbers;
  std::set<std::tuple<unsigned, bool, bool>> rest;
  for (const cell& c : walks) {
    ++corners[{c.where, c.mode}];
    ++deeds[c.what];
    sizes.insert(c.size_bytes);
    numbers.insert(c.number);
    rest.insert({c.depth, c.has_heartbeats, c.answering_mode == c.mode});
    CHECK(c.operations * c.stride() <= all.walk_bytes_max + c.stride());
  }
  CHECK(corners.size() == 20);
  for (const auto& [corner, count] : corners) CHECK(count == 50);
  for (const auto& [what, count] : deeds) CHECK((count == 66 || count == 67));
  for (const std::size_t bound : size_classes(all)) {
    INFO(bound);
    CHECK((sizes.contains(bound) || sizes.contains(bound + 1)));
  }
  CHECK(sizes.contains(0));
  CHECK(numbers.size() == walks.size());
  CHECK(rest.size() == 12);
}

TEST_CASE("a pair that stands still is told of, with what both ends were doing", "[walk]") {
  const auto b = make_board();
  walkers both;
  both.push_back(std::make_unique<walker>([] {}));
  int silent[2];
  REQUIRE(::pipe(silent) == 0);
  both.push_back(std::make_unique<walker>([&] {
    b->asking.does("waits for nobody");
    char never = 0;
    while (::read(silent[0], &never, 1) >= 0) {
    }
  }));
  const auto found = watch(*b, both, 100ms);
  REQUIRE(found.has_value());
  CHECK_THAT(*found, Catch::Contains("nothing got on") && Catch::Contains("waits for nobody"));
  for (const int end : silent) ::close(end);
}

TEST_CASE("an end that fails or dies is told of, with why", "[walk]") {
  const auto b = make_board();
  walkers one;
  one.push_back(std::make_unique<walker>([&] {
    b->answering.fails("the bytes are other ones");
    ::raise(SIGKILL);
  }));
  const auto found = watch(*b, one, 60s);
  REQUIRE(found.has_value());
  CHECK_THAT(*found, Catch::Contains("the bytes are other ones"));
}

TEST_CASE("whatever two ends do, wherever they are, gets on", "[walk][device]") {
  world small = world_here();
  small.size_max = (std::size_t{1} << 20) + 1;
  small.walk_bytes_max = std::size_t{8} << 20;
  const std::vector<cell> walks = draw(small, cordma::test::is_soft() ? 120 : 24, 20261128);
  CHECK(walk_all(walks, 60s).empty());
}

TEST_CASE("whatever two ends do, of any size and depth, gets on", "[.soak-walk][walk][device]") {
  const std::uint64_t seed = cordma::test::soak::seed();
  const std::vector<cell> walks = draw(world_here(), cordma::test::soak::count(100'000), seed);
  CHECK(walk_all(walks, patience()).empty());
}
