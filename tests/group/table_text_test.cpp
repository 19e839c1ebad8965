#include "group/table_text.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <cerrno>

using namespace cordma;
using namespace cordma::detail;

TEST_CASE("a wrong change of the table is named, with what there is", "[group]") {
  const auto refused = [](const char* text, const char* change, const char* why) {
    CAPTURE(text);
    CHECK_THROWS_WITH(algorithm_table{text}, Catch::Contains(change) && Catch::Contains(why));
    try {
      static_cast<void>(algorithm_table{text});
    } catch (const error& e) {
      CHECK(e.code() == std::error_code{EINVAL, std::system_category()});
    }
  };
  refused("segment=1M, all_reduce=rings", "\"all_reduce=rings\"",
          "rings is none of recursive_doubling, rabenseifner, ring, two_level");
  refused("all_reduces=ring", "all_reduces is none of barrier, broadcast, scatter, gather",
          "scan, segment");
  refused("ring", "\"ring\"", "OPERATION=ALGORITHM");
  refused("broadcast=chain@64K", "\"broadcast=chain@64K\"", "64K is no range");
  refused("broadcast=chain@64Q..", "\"broadcast=chain@64Q..\"", "64Q is no number");
  refused("broadcast=chain@K..", "\"broadcast=chain@K..\"", "K is no number");
  refused("broadcast=chain@-1..", "\"broadcast=chain@-1..\"", "-1 is no number");
  refused("broadcast=chain@2..1", "\"broadcast=chain@2..1\"", "the range is empty");
  refused("broadcast=chain:..8G", "\"broadcast=chain:..8G\"", "8G is no number up to 4294967295");
  refused("broadcast=chain@..17179869184G", "17179869184G is no number", "18446744073709551615");
  refused("broadcast=chain@", "\"broadcast=chain@\"", "is no range");
  refused("segment=63", "\"segment=63\"", "64 bytes at least");
  refused("segment=", "\"segment=\"", "is no number");
  refused("segment=2G", "\"segment=2G\"", "2G is no number up to 1073741824");
}

TEST_CASE("changes are read in order, whatever separates them", "[group]") {
  std::vector<table_change> changes;
  read_changes("\tgather=linear@..1K,,scan=recursive_doubling:2..\n segment=0x100",
               [&](const table_change& change) { changes.push_back(change); });
  REQUIRE(changes.size() == 3);
  CHECK(changes[0].row.chosen->name == std::string{"linear"});
  CHECK(changes[0].row.bytes_max == 1024);
  CHECK(changes[1].row.ranks_min == 2);
  CHECK(changes[2].segment_bytes == 256);
}
