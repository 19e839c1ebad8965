#include "perf/pace.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <stdexcept>
#include <vector>

using namespace perf;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

constexpr pace::time_point begin{1h};

std::vector<std::chrono::nanoseconds> offsets(pace p, std::size_t count) {
  std::vector<std::chrono::nanoseconds> all;
  for (std::size_t i = 0; i < count; ++i, p.advance()) all.push_back(p.next() - begin);
  return all;
}

}  // namespace

TEST_CASE("operations at a fixed rate are due at even times, the first at once", "[tools]") {
  CHECK(offsets(pace{{.per_second = 2000}, begin}, 4) ==
        std::vector<std::chrono::nanoseconds>{0us, 500us, 1000us, 1500us});
}

TEST_CASE("rounding does not add up over a million gaps", "[tools]") {
  pace thirds{{.per_second = 3e6}, begin};
  for (int i = 0; i < 3'000'000; ++i) thirds.advance();
  CHECK(std::abs((thirds.next() - begin - 1s).count()) <= 1);
}

TEST_CASE("exponential gaps have the mean and the spread of their distribution", "[tools]") {
  const auto times =
      offsets(pace{{.per_second = 1000, .gaps = gap_kind::exponential, .seed = 7}, begin}, 100'001);
  double sum = 0, squares = 0;
  for (std::size_t i = 1; i < times.size(); ++i) {
    REQUIRE(times[i] >= times[i - 1]);
    const double ms = double((times[i] - times[i - 1]).count()) / 1e6;
    sum += ms;
    squares += ms * ms;
  }
  const double mean = sum / 100'000;
  CHECK(mean == Approx(1).epsilon(0.02));
  CHECK(std::sqrt(squares / 100'000 - mean * mean) == Approx(1).epsilon(0.03));
}

TEST_CASE("a seed gives the same gaps again, and another one others", "[tools]") {
  const pace_options seven{.per_second = 1000, .gaps = gap_kind::exponential, .seed = 7};
  pace_options eight = seven;
  eight.seed = 8;
  CHECK(offsets(pace{seven, begin}, 9) == offsets(pace{seven, begin}, 9));
  CHECK(offsets(pace{seven, begin}, 9) != offsets(pace{eight, begin}, 9));
}

TEST_CASE("a pace tells how many operations are due before a deadline", "[tools]") {
  pace p{{.per_second = 1000}, begin};
  CHECK(p.due_before(begin) == 0);
  CHECK(p.due_before(begin + 10ms) == 10);
  for (int i = 0; i < 4; ++i) p.advance();
  CHECK(p.due_before(begin + 10ms) == 6);
  CHECK(p.due_before(begin + 1ms) == 0);
}

TEST_CASE("rates are read with suffixes of thousands, and as sweeps", "[tools]") {
  CHECK(parse_rates("0.5") == std::vector<double>{0.5});
  CHECK(parse_rates("20k") == std::vector<double>{20'000});
  CHECK(parse_rates("1.5M") == std::vector<double>{1'500'000});
  CHECK(parse_rates("1k:5k") == std::vector<double>{1000, 2000, 4000});
  CHECK(rate_text(20'000) == "20k");
  CHECK(rate_text(1'500'000) == "1.5M");
  CHECK(rate_text(7) == "7");
}

TEST_CASE("a rate that is none is refused, with the text and the way out", "[tools]") {
  for (const char* text : {"", "x", "0", "-5", "5G", "1e9", "nan", "1k:", "5k5"}) {
    INFO(text);
    CHECK_THROWS_WITH(parse_rates(text), Contains("--rate '") && Contains("such as 5000 or 20k"));
  }
  CHECK_THROWS_WITH(parse_rates("2k:1k"), Contains("'2k:1k'") && Contains("a sweep"));
  CHECK_THROWS_WITH(parse_gaps("even"), Contains("--gaps 'even'") && Contains("exponential"));
  CHECK(parse_gaps("exponential") == gap_kind::exponential);
}
