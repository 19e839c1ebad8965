#include "verbs/port_counters.hpp"

#include "support/device.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <fstream>

using namespace cordma::verbs;
using cordma::test::temporary_folder;

TEST_CASE("what a port counts of receivers that were not ready is read, as far as it is there",
          "[verbs]") {
  const temporary_folder sys;
  const auto counters = sys.path / "rxe0" / "ports" / "2" / "hw_counters";
  std::filesystem::create_directories(counters);
  std::ofstream{counters / "send_rnr_err"} << "17\n";
  std::ofstream{counters / "rcvd_rnr_err"} << "18446744073709551615\n";
  std::ofstream{counters / "out_of_buffer"} << "nothing\n";
  const std::string folder = sys.path.string();
  const rnr_counters read = read_rnr_counters("rxe0", 2, folder.c_str());
  for (std::size_t n = 0; n < rnr_counters::sources.size(); ++n) {
    const std::string_view name = rnr_counters::sources[n].name;
    CAPTURE(name);
    if (name == "send_rnr_err") {
      CHECK(read.values[n].value() == 17);
    } else if (name == "rcvd_rnr_err") {
      CHECK(read.values[n].value() == UINT64_MAX);
    } else {
      CHECK_FALSE(read.values[n].has_value());
    }
  }
  CHECK(read_rnr_counters("rxe0", 1, folder.c_str()).values == rnr_counters{}.values);
  const std::string endless(10'000, 'x');
  CHECK(read_rnr_counters(endless, 1, folder.c_str()).values == rnr_counters{}.values);
}

TEST_CASE("a port that there is not counts no wrong Q_Keys", "[verbs][device]") {
  const context ctx{cordma::test::device_name()};
  CHECK(read_qkey_violations(ctx, ctx.active_port().number).has_value());
  CHECK_FALSE(read_qkey_violations(ctx, 255).has_value());
}
