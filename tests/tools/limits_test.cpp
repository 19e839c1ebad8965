#include "perf/limits.hpp"

#include <catch2/catch.hpp>

#include <stdexcept>
#include <string>

using namespace perf;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

/// A hundred operations of 1 us to 100 us in a millisecond: 100,000 a second.
result hundred() {
  result r{.what = {.size_bytes = 1000, .rate = 200'000}};
  for (int i = 1; i <= 100; ++i) r.ours.latencies.add(std::chrono::microseconds{i});
  r.ours.seconds = 0.001;
  r.ours.cost.cpu = 300us;
  return r;
}

std::string above(const char* text) {
  return broken(parse_limit("--fail-above", text), hundred()).value_or("kept");
}
std::string below(const char* text) {
  return broken(parse_limit("--fail-below", text), hundred()).value_or("kept");
}

}  // namespace

TEST_CASE("a value beyond its limit is named, with both", "[tools]") {
  CHECK_THAT(above("p50=49us"),
             Contains("write, 1000 bytes") && Contains("p50 is 50.") && Contains("us, above 49us"));
  CHECK_THAT(below("ops/s=150k"), Contains("ops/s is 100000, below 150k"));
  CHECK_THAT(below("achieved=0.9"), Contains("achieved is 0.5000, below 0.9"));
}

TEST_CASE("each quantity has a limit that is kept, and one that is not", "[tools]") {
  struct bounds {
    const char* kept;
    const char* broken;
  };
  for (const bounds& b : {bounds{"p50=51us", "p50=49us"},
                          {"p90=91us", "p90=0.089ms"},
                          {"p99=100us", "p99=98000ns"},
                          {"p99.9=0.001s", "p99.9=99us"},
                          {"max=100us", "max=99.9us"},
                          {"mean=50.5us", "mean=50.4us"},
                          {"cpu=3us", "cpu=2.9us"},
                          {"ops/s=0.1M", "ops/s=99k"},
                          {"GB/s=0.1", "GB/s=0.09"},
                          {"Gbit/s=0.81", "Gbit/s=0.79"},
                          {"achieved=0.51", "achieved=0.49"}}) {
    INFO(b.kept);
    CHECK(above(b.kept) == "kept");
    CHECK(above(b.broken) != "kept");
    CHECK(below(b.broken) == "kept");
  }
}

TEST_CASE("a limit of the ratio needs a baseline, and one of the achieved part a rate", "[tools]") {
  const limit ratio = parse_limit("--fail-above", "ratio=1.2");
  CHECK_THROWS_WITH(check_measured(ratio, job{}, false),
                    Contains("ratio=1.2") && Contains("--baseline"));
  CHECK_NOTHROW(check_measured(ratio, job{}, true));
  const limit part = parse_limit("--fail-below", "achieved=0.99");
  CHECK_THROWS_WITH(check_measured(part, job{}, false), Contains("--rate"));
  CHECK_NOTHROW(check_measured(part, job{.rate = 5}, false));
  result r = hundred();
  r.baseline = comparison{.ours_ns = 13, .raw_ns = 10};
  CHECK_THAT(broken(ratio, r).value_or("kept"), Contains("ratio is 1.3000, above 1.2"));
}

TEST_CASE("no limit is kept where no operation ended", "[tools]") {
  CHECK_THAT(broken(parse_limit("--fail-above", "p99=1s"), result{.what = {}}).value_or("kept"),
             Contains("no operation ended"));
}

TEST_CASE("a limit that is none is refused, with the text and the way out", "[tools]") {
  for (const char* text : {"p99", "p98=20us", "", "=", "latency=5us"}) {
    INFO(text);
    CHECK_THROWS_WITH(parse_limit("--fail-above", text),
                      Contains(std::string{"--fail-above '"} + text + "'") && Contains("p99=20us"));
  }
  CHECK_THROWS_WITH(parse_limit("--fail-above", "p99=20"),
                    Contains("'p99=20'") && Contains("20us"));
  CHECK_THROWS_WITH(parse_limit("--fail-below", "ops/s=5us"), Contains("'ops/s=5us'"));
  for (const char* text : {"p99=us", "p99=-1us", "p99=nanus", "GB/s=1k", "max=1e30s"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_limit("--fail-below", text), std::invalid_argument);
  }
}
