#include "sim/trace.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using sim::detail::coverage;
using sim::detail::event_text;
using sim::detail::trace;
using sim::detail::trace_record;

namespace {

trace_record numbered(std::uint64_t number, unsigned host = 1) {
  return {.at = time_point{1ms}, .host = host, .what = "counts {}", .numbers = {number}};
}

std::uint64_t hash_after(const trace_record& r) {
  trace all;
  all.add_host();
  all.add_host();
  all.note(numbered(1));
  all.note(r);
  all.note(numbered(2));
  return all.hash();
}

/// Returns how many states two events in a row come to.
std::size_t states_of(const trace_record& first, const trace_record& second) {
  const auto states = std::make_unique<coverage>();
  trace all;
  all.add_host();
  all.add_host();
  all.cover(*states);
  all.note(first);
  all.note(second);
  return states->count();
}

}  // namespace

TEST_CASE("the text of an event has its numbers in the holes, and great ones in hexadecimal",
          "[sim]") {
  const auto text_of = [](event_text what, std::array<std::uint64_t, 4> numbers) {
    return trace_record{.what = what, .numbers = numbers}.text();
  };
  CHECK(text_of("is killed", {7}) == "is killed");
  CHECK(text_of("{} of {} and {} and {}, in all", {1, 65535, 65536, UINT64_MAX}) ==
        "1 of 65535 and 0x10000 and 0xffffffffffffffff, in all");
}

TEST_CASE("a trace has the last events of each host, the oldest first", "[sim]") {
  trace all;
  all.add_host();
  all.add_host();
  for (std::uint64_t n = 0; n < 100; ++n) all.note(numbered(n, n == 2 ? 2 : 1));
  const std::vector<trace_record> last = all.last_of(1);
  REQUIRE(last.size() == 24);
  CHECK(last.front().text() == "counts 76");
  CHECK(last.back().text() == "counts 99");
  REQUIRE(all.last_of(2).size() == 1);
  CHECK(all.last_of(2)[0].text() == "counts 2");
}

TEST_CASE("a trace keeps all events if it is told to", "[sim]") {
  trace all;
  all.add_host();
  all.note(numbered(1));
  CHECK(all.all().empty());
  all.keep_all();
  for (std::uint64_t n = 0; n < 100; ++n) all.note(numbered(n));
  REQUIRE(all.all().size() == 100);
  CHECK(all.all()[3].numbers[0] == 3);
}

TEST_CASE("the hash of a trace differs by each word of an event", "[sim]") {
  const trace_record plain{
      .at = time_point{1ms}, .host = 1, .what = "sends {}", .numbers = {1, 2, 3, 4}};
  const std::uint64_t hash = hash_after(plain);
  CHECK(hash_after(plain) == hash);
  const auto differs = [&](auto change) {
    trace_record changed = plain;
    change(changed);
    return hash_after(changed) != hash;
  };
  CHECK(differs([](trace_record& r) { r.at += 1ns; }));
  CHECK(differs([](trace_record& r) { r.host = 2; }));
  CHECK(differs([](trace_record& r) { r.what = "gets {}"; }));
  CHECK(differs([](trace_record& r) { r.what = "sends {}."; }));
  for (std::size_t n = 0; n < 4; ++n)
    for (const std::uint64_t bit : {std::uint64_t{1}, std::uint64_t{1} << 63})
      CHECK(differs([&](trace_record& r) { r.numbers[n] ^= bit; }));
}

TEST_CASE("two runs of which one has an event more have different hashes", "[sim]") {
  trace one, other;
  one.add_host();
  other.add_host();
  one.note({.host = 1});
  CHECK(one.hash() != other.hash());
}

TEST_CASE("events in a row come to states, which one host does not share with the next", "[sim]") {
  const auto event = [](event_text what, std::uint64_t last, unsigned host = 1) {
    return trace_record{.host = host, .what = what, .numbers = {0, 0, 0, last}};
  };
  constexpr event_text a = "a", b = "b";
  CHECK(states_of(event(a, 0), event(b, 0)) == 2);
  CHECK(states_of(event(a, 0), event(a, 0, 2)) == 1);
  CHECK(states_of(event(a, 0), event(a, 4, 2)) == 2);
  CHECK(states_of(event(a, 4), event(a, 7, 2)) == 1);
}
