#include <cordma/group/joining.hpp>

#include "group/meeting_variables.hpp"
#include "meetings.hpp"
#include "support/variable.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using test::variable;

TEST_CASE("ranks of a torchrun that a launcher started are torchrun's", "[group][device]") {
  const variable name{"PMIX_NAMESPACE", "job"}, agent{"PMIX_RANK", "0"};
  const variable id{"TORCHELASTIC_RUN_ID", "1"}, meeting_point{"CORDMA_MEETING", nullptr};
  const variable rank{"RANK", "0"}, size{"WORLD_SIZE", "1"}, local{"LOCAL_WORLD_SIZE", "1"};
  runtime rt{test::on_test_device()};
  test::check_rosters(test::meet_all(rt, {meeting::by_launcher()}));
}

TEST_CASE("without a launcher a program is a group of one", "[group][device]") {
  const variable name{"PMIX_NAMESPACE", nullptr}, agent{"PMIX_RANK", nullptr};
  const variable rank{"RANK", nullptr}, size{"WORLD_SIZE", nullptr};
  runtime rt{test::on_test_device()};
  test::check_rosters(test::meet_all(rt, {meeting::by_launcher()}));
}
