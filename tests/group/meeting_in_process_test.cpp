#include "meetings.hpp"

#include "support/outcome.hpp"

#include <atomic>
#include <chrono>
#include <thread>

using namespace cordma;
using test::code_of;
using test::failure_of;

namespace {

detail::roster meet_on_a_runtime(const meeting& where, unsigned rank,
                                 const group_options& options = {}) {
  runtime rt{test::on_test_device()};
  return rt.run(test::meet(where, rt, options, test::some_member(rank)));
}

}  // namespace

TEST_CASE("a group of one needs nobody", "[group][device]") {
  runtime rt{test::on_test_device()};
  const meeting own = meeting::single();
  CHECK(rt.run(own.kind().where_to_listen(rt)) == endpoint{"127.0.0.1", 0});
  test::check_rosters(test::meet_all(rt, {own}));
}

TEST_CASE("two groups of one have different names", "[group][device]") {
  CHECK(meet_on_a_runtime(meeting::single(), 0).name !=
        meet_on_a_runtime(meeting::single(), 0).name);
}

TEST_CASE("ranks on threads and runtimes of their own learn of each other", "[group][device]") {
  constexpr unsigned size = 5;
  const std::vector<meeting> ranks = meeting::in_process(size);
  std::vector<result<detail::roster>> all(size, cancelled_result);
  std::vector<std::jthread> threads;
  for (unsigned rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] { all[rank] = meet_on_a_runtime(ranks[rank], rank); });
  threads.clear();
  test::check_rosters(std::move(all));
}

TEST_CASE("ranks of one runtime meet without blocking its executor", "[group][device]") {
  runtime rt{test::on_test_device()};
  test::check_rosters(test::meet_all(rt, meeting::in_process(7)));
}

TEST_CASE("ranks that do not come to their process's meeting are named", "[group][device]") {
  runtime rt{test::on_test_device()};
  const std::vector<meeting> ranks = meeting::in_process(4);
  group_options options;
  options.join_timeout = std::chrono::milliseconds{1};
  const auto all = test::meet_all(rt, {ranks[0], ranks[1]}, options);
  for (const result<detail::roster>& one : all) {
    REQUIRE(code_of(one) == errc::timed_out);
    CHECK_THAT(one.failure().to_string(), Catch::Contains("ranks ") && Catch::Contains("2, 3") &&
                                              Catch::Contains("of 4 did not come within 1 ms"));
  }
}

TEST_CASE("a rank that gave up may come again", "[group][device]") {
  runtime rt{test::on_test_device()};
  const std::vector<meeting> ranks = meeting::in_process(2);
  group_options hasty;
  hasty.join_timeout = std::chrono::milliseconds{1};
  CHECK(code_of(test::meet_all(rt, {ranks[0]}, hasty)[0]) == errc::timed_out);
  test::check_rosters(test::meet_all(rt, ranks));
}

TEST_CASE("a rank that is stopped while it waits is not told", "[group][device]") {
  runtime rt{test::on_test_device()};
  const std::vector<meeting> ranks = meeting::in_process(2);
  rt.run(with_scope([&](scope& running) -> task<> {
    running.spawn(test::meet(ranks[0], rt, test::patient(), test::some_member(0)));
    co_await sleep_for(duration{0});
    running.request_stop();
  }));
  group_options hasty;
  hasty.join_timeout = std::chrono::milliseconds{1};
  CHECK(code_of(test::meet_all(rt, {ranks[1]}, hasty)[0]) == errc::timed_out);
}

TEST_CASE("a rank of a process cannot come twice", "[group][device]") {
  runtime rt{test::on_test_device()};
  const std::vector<meeting> ranks = meeting::in_process(2);
  static_cast<void>(test::meet_all(rt, ranks));
  const auto again = test::meet_all(rt, {ranks[0]});
  REQUIRE(code_of(again[0]) == errc::refused);
  CHECK_THAT(again[0].failure().to_string(), Catch::Contains("rank 0 has come already"));
}

TEST_CASE("a rank that nobody can connect to is told which option to set", "[group][device]") {
  runtime rt{test::on_test_device()};
  const meeting own = meeting::in_process(1)[0];
  const failure f =
      failure_of([&] { rt.run(test::meet(own, rt, test::patient(), {"0.0.0.0:4711", 7})); });
  CHECK(f.code == std::error_code{EINVAL, std::system_category()});
  CHECK_THAT(f.to_string(),
             Catch::Contains("'0.0.0.0:4711'") && Catch::Contains("group_options::listen"));
}

TEST_CASE("a group has at least one rank", "[group]") {
  const failure f = failure_of([] { static_cast<void>(meeting::in_process(0)); });
  CHECK(f.code == errc::out_of_range);
  CHECK_THAT(f.to_string(), Catch::Contains("a group of 0 ranks"));
}
