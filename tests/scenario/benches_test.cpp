#include "scenario/folders.hpp"
#include "support/commands.hpp"

#include <catch2/catch.hpp>

#include <string>

using cordma::test::outcome;
using cordma::test::run;

TEST_CASE("a benchmark writes its figures as an array of objects with the promised keys",
          "[scenario]") {
  const outcome ran = run(CORDMA_BUILD_FOLDER "/bench/bench_coro coro/channel --json /dev/stdout");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  for (const char* key : {"bench", "case", "metric", "unit", "value", "baseline", "ratio"}) {
    CHECK_THAT(ran.output, Catch::Contains('"' + std::string{key} + "\": "));
  }
  CHECK_THAT(ran.output, Catch::Contains("\n[\n  {") && Catch::EndsWith("}\n]\n"));
}
