#include "group/meeting_variables.hpp"

#include "meetings.hpp"
#include "reserved_port.hpp"
#include "support/outcome.hpp"
#include "support/variable.hpp"

#include <catch2/catch.hpp>

#include <list>
#include <string>

using namespace cordma;
using detail::point_of_environment;
using test::failure_of;
using test::variable;

namespace {

/// torchrun's variables, and no others.
class torchrun {
 public:
  torchrun(const char* rank, const char* size) {
    for (const char* name :
         {"MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE",
          "TORCHELASTIC_RUN_ID", "CORDMA_MEETING", "PMIX_NAMESPACE", "PMIX_RANK"})
      set(name, nullptr);
    set("RANK", rank);
    set("WORLD_SIZE", size);
  }
  torchrun& set(const char* name, const char* value) {
    all_.emplace_back(name, value);
    return *this;
  }
  ~torchrun() {
    while (!all_.empty()) all_.pop_back();  // The first value of each comes back last.
  }
  torchrun(const torchrun&) = delete;

 private:
  std::list<variable> all_;
};

std::string refusal() {
  return failure_of([] { point_of_environment(); }).to_string();
}

}  // namespace

TEST_CASE("torchrun's variables name rank 0's address, the rank and the size", "[group]") {
  torchrun of{"2", "8"};
  of.set("MASTER_ADDR", "192.0.2.7").set("MASTER_PORT", "29500");
  const detail::meeting_point where = point_of_environment();
  CHECK(where.address == endpoint{"192.0.2.7", 29500});
  CHECK(where.rank == 2);
  CHECK(where.size == 8);
  CHECK_FALSE(where.is_one_host);
}

TEST_CASE("beside the store of torchrun's agent ranks meet at the next port", "[group]") {
  torchrun of{"2", "8"};
  of.set("MASTER_ADDR", "::1").set("MASTER_PORT", "29500");
  of.set("TORCHELASTIC_USE_AGENT_STORE", "True");
  CHECK(point_of_environment().address == endpoint{"::1", 29501});
  of.set("TORCHELASTIC_USE_AGENT_STORE", "False");
  CHECK(point_of_environment().address == endpoint{"::1", 29500});
  of.set("TORCHELASTIC_USE_AGENT_STORE", "True").set("MASTER_PORT", "65535");
  CHECK_THAT(refusal(), Catch::Contains("MASTER_PORT") && Catch::Contains("'65535'"));
}

TEST_CASE("CORDMA_MEETING names where ranks meet, whatever torchrun says", "[group]") {
  torchrun of{"1", "2"};
  of.set("MASTER_ADDR", "192.0.2.7").set("MASTER_PORT", "29500");
  of.set("TORCHELASTIC_USE_AGENT_STORE", "True").set("CORDMA_MEETING", "unix:@here");
  CHECK(point_of_environment().address == endpoint{"unix:@here"});
  of.set("MASTER_ADDR", nullptr).set("MASTER_PORT", nullptr);
  CHECK(point_of_environment().address == endpoint{"unix:@here"});
  of.set("CORDMA_MEETING", "node1");
  CHECK_THAT(refusal(), Catch::Contains("CORDMA_MEETING") && Catch::Contains("'node1'"));
}

TEST_CASE("ranks are on one host if torchrun says so, or they meet at loopback", "[group]") {
  torchrun of{"1", "4"};
  of.set("MASTER_ADDR", "192.0.2.7").set("MASTER_PORT", "29500");
  of.set("LOCAL_WORLD_SIZE", "4");
  CHECK(point_of_environment().is_one_host);
  of.set("LOCAL_WORLD_SIZE", "2");
  CHECK_FALSE(point_of_environment().is_one_host);
  of.set("MASTER_ADDR", "localhost");
  CHECK_FALSE(point_of_environment().is_one_host);
  of.set("LOCAL_WORLD_SIZE", nullptr);
  CHECK(point_of_environment().is_one_host);
}

TEST_CASE("rank 0 listens for other hosts even if its own name is loopback's to it", "[group]") {
  torchrun of{"0", "4"};
  of.set("MASTER_ADDR", "localhost").set("MASTER_PORT", "29500").set("LOCAL_WORLD_SIZE", "2");
  CHECK(point_of_environment().address == endpoint{"0.0.0.0", 29500});
  of.set("RANK", "2");
  CHECK(point_of_environment().address == endpoint{"localhost", 29500});
}

TEST_CASE("a variable of torchrun's that is missing is named", "[group]") {
  torchrun of{"0", "2"};
  of.set("MASTER_ADDR", "192.0.2.7").set("MASTER_PORT", "29500");
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    const variable unset{name, nullptr};
    CHECK(failure_of([] { point_of_environment(); }).code ==
          std::error_code{EINVAL, std::system_category()});
    CHECK_THAT(refusal(), Catch::StartsWith(name) && Catch::Contains("is not set"));
  }
}

TEST_CASE("a variable of torchrun's that is wrong is named with its text", "[group]") {
  torchrun of{"0", "2"};
  of.set("MASTER_ADDR", "192.0.2.7").set("MASTER_PORT", "29500");
  const struct {
    const char* name;
    const char* text;
  } wrong[] = {{"RANK", "2"},
               {"RANK", "first"},
               {"WORLD_SIZE", "0"},
               {"WORLD_SIZE", "99999999"},
               {"MASTER_PORT", "0"},
               {"MASTER_PORT", "70000"},
               {"LOCAL_WORLD_SIZE", "3"},
               {"MASTER_ADDR", ""}};
  for (const auto& one : wrong) {
    const variable set{one.name, one.text};
    CHECK_THAT(refusal(),
               Catch::StartsWith(one.name) && Catch::Contains('\'' + std::string{one.text} + '\''));
  }
}

TEST_CASE("a single rank of torchrun's needs no address", "[group][device]") {
  const torchrun of{"0", "1"};
  runtime rt{test::on_test_device()};
  test::check_rosters(test::meet_all(rt, {meeting::by_environment()}));
}

TEST_CASE("torchrun's ranks meet", "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  const std::string number = std::to_string(port.number());
  std::vector<meeting> ranks;
  for (const char* rank : {"0", "1", "2"}) {
    torchrun of{rank, "3"};
    of.set("MASTER_ADDR", "127.0.0.1").set("MASTER_PORT", number.c_str());
    ranks.push_back(meeting::by_environment());
  }
  CHECK(rt.run(ranks[1].kind().where_to_listen(rt)) == endpoint{"127.0.0.1", 0});
  test::check_rosters(test::meet_all(rt, std::move(ranks)));
}

TEST_CASE("where torchrun's port is taken, rank 0 is told how to name another", "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  const listener store = rt.listen(port.address());
  torchrun of{"0", "2"};
  of.set("MASTER_ADDR", "127.0.0.1").set("MASTER_PORT", std::to_string(port.number()).c_str());
  const auto all = test::meet_all(rt, {meeting::by_environment()});
  REQUIRE(all[0].has_failure());
  CHECK(all[0].failure().code == std::error_code{EADDRINUSE, std::system_category()});
  CHECK_THAT(all[0].failure().to_string(), Catch::Contains("CORDMA_MEETING=host:port"));
}
