#include "sim/plan.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <system_error>

using namespace cordma;
using sim::detail::decision_kind;
using sim::detail::decision_set;
using sim::detail::plan;

namespace {

/// Returns the text of the error with which a plan is refused.
std::string refusal_of(const char* text) {
  try {
    static_cast<void>(plan::parse(text));
  } catch (const std::system_error& e) {
    CHECK(e.code() == std::errc::invalid_argument);
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a plan is the text that it was parsed from", "[sim]") {
  for (const char* const text :
       {"fault=all network=all schedule=all", "fault=none network=none schedule=none",
        "fault=3,17 network=0-63,128-191 schedule=all",
        "fault=0 network=18446744073709551615 schedule=1-2,4,6-18446744073709551615"})
    CHECK(plan::parse(text).text() == text);
}

TEST_CASE("a plan keeps all decisions of the kinds that its text does not name", "[sim]") {
  CHECK(plan::parse("") == plan{});
  CHECK(plan{}.text() == "fault=all network=all schedule=all");
  CHECK(plan::parse("schedule=none fault=5").text() == "fault=5 network=all schedule=none");
}

TEST_CASE("a plan contains the ends of its ranges, and nothing beside them", "[sim]") {
  const plan p = plan::parse("fault=3,10-12,20-29 network=none");
  const decision_set& faults = p.of(decision_kind::fault);
  for (const unsigned kept : {3u, 10u, 11u, 12u, 20u, 29u}) CHECK(faults.contains(kept));
  for (const unsigned taken : {0u, 2u, 4u, 9u, 13u, 19u, 30u}) CHECK_FALSE(faults.contains(taken));
  CHECK_FALSE(p.of(decision_kind::network).contains(0));
  CHECK(p.of(decision_kind::schedule).contains(UINT64_MAX));
}

TEST_CASE("another set of one kind leaves a plan's other kinds as they were", "[sim]") {
  const plan p = plan::parse("fault=1 network=2 schedule=3");
  CHECK(p.with(decision_kind::network, decision_set{{{7, 9}}}).text() ==
        "fault=1 network=7-9 schedule=3");
  CHECK(p.text() == "fault=1 network=2 schedule=3");
}

TEST_CASE("the refusal of a plan names its wrong part", "[sim]") {
  using Catch::Contains;
  CHECK_THAT(refusal_of("fault=1 fright=2"), Contains("not 'fright=2'"));
  CHECK_THAT(refusal_of("fault=1 network"), Contains("not 'network'"));
  CHECK_THAT(refusal_of("fault=1,two"), Contains("not a number: 'two'"));
  CHECK_THAT(refusal_of("fault=-3"), Contains("not a number: '-3'"));
  CHECK_THAT(refusal_of("network=4-"), Contains("not a number: '4-'"));
  CHECK_THAT(refusal_of("fault=18446744073709551616"), Contains("'18446744073709551616'"));
  CHECK_THAT(refusal_of("schedule=9-7"), Contains("ranges go up: '9-7'"));
  CHECK_THAT(refusal_of("schedule=1-5,5"), Contains("ranges go up: '1-5,5'"));
}
