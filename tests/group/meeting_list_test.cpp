#include "meetings.hpp"

#include "support/outcome.hpp"
#include "support/temporary_folder.hpp"

#include <fstream>

using namespace cordma;
using test::failure_of;

namespace {

const std::vector<endpoint> three{"node1:7000", "node2:7000", "node1:7001"};

detail::roster meet_by(const meeting& where) {
  runtime rt{test::on_test_device()};
  return rt.run(test::meet(where, rt, test::patient(), test::some_member(0)));
}

std::string text_of_failure(auto action) { return failure_of(action).to_string(); }

/// A file of endpoints, for as long as the test runs.
class list_file {
 public:
  explicit list_file(std::string_view text) { std::ofstream{path()} << text; }
  [[nodiscard]] std::string path() const { return folder_.path / "ranks"; }

 private:
  test::temporary_folder folder_;
};

}  // namespace

TEST_CASE("each rank listens at its endpoint of the list", "[group][device]") {
  runtime rt{test::on_test_device()};
  for (unsigned rank = 0; rank < three.size(); ++rank) {
    const meeting own = meeting::by_list(three, rank);
    CHECK(rt.run(own.kind().where_to_listen(rt)) == three[rank]);
  }
}

TEST_CASE("ranks of a list learn the same without asking each other", "[group][device]") {
  const detail::roster first = meet_by(meeting::by_list(three, 0));
  const detail::roster last = meet_by(meeting::by_list(three, 2));
  CHECK(first.rank == 0);
  CHECK(last.rank == 2);
  CHECK(first.name == last.name);
  REQUIRE(first.members.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(first.members[i].endpoint == three[i].to_string());
    CHECK(first.members[i].host == last.members[i].host);
  }
}

TEST_CASE("ranks of a list share a host if their endpoints name the same", "[group][device]") {
  const detail::roster all = meet_by(meeting::by_list(
      {"node1:1", "node2:1", "node1:2", "127.0.0.1:3", "localhost:4", "[::1]:5", "unix:@six"}, 0));
  CHECK(all.members[0].host == all.members[2].host);
  CHECK(all.members[0].host != all.members[1].host);
  for (std::size_t i = 4; i < 7; ++i) CHECK(all.members[i].host == all.members[3].host);
  CHECK(all.members[3].host != all.members[0].host);
}

TEST_CASE("other lists make other names", "[group][device]") {
  const std::vector<endpoint> swapped{three[1], three[0], three[2]};
  CHECK(meet_by(meeting::by_list(three, 0)).name != meet_by(meeting::by_list(swapped, 0)).name);
}

TEST_CASE("a list without this rank is refused", "[group]") {
  const failure f = failure_of([] { static_cast<void>(meeting::by_list(three, 3)); });
  CHECK(f.code == errc::out_of_range);
  CHECK_THAT(f.to_string(), Catch::Contains("rank 3 of a group of 3"));
}

TEST_CASE("a list that ranks cannot meet by is refused by name", "[group]") {
  const auto refusal = [](std::vector<endpoint> members) {
    return text_of_failure([&] { static_cast<void>(meeting::by_list(std::move(members), 0)); });
  };
  CHECK_THAT(refusal({"a:1", "b:0"}), Catch::Contains("rank 1: 'b:0' has no port"));
  CHECK_THAT(refusal({"a:1", "b:1", "a:1"}),
             Catch::Contains("ranks 0 and 2 have the same endpoint, 'a:1'"));
  CHECK_THAT(refusal({"0.0.0.0:1"}), Catch::Contains("'0.0.0.0:1' is no address"));
}

TEST_CASE("a file has an endpoint a line, and comments", "[group][device]") {
  const list_file file{"# three ranks\nnode1:7000\n\n  node2:7000 # the second\r\nnode1:7001"};
  const detail::roster all = meet_by(meeting::by_file(file.path(), 1));
  CHECK(all.rank == 1);
  REQUIRE(all.members.size() == 3);
  CHECK(all.members[1].endpoint == "node2:7000");
  CHECK(all.name == meet_by(meeting::by_list(three, 0)).name);
}

TEST_CASE("a wrong line of a file is named with its text", "[group]") {
  const list_file file{"node1:7000\nnode2\n"};
  const failure f = failure_of([&] { static_cast<void>(meeting::by_file(file.path(), 0)); });
  CHECK(f.code == std::error_code{EINVAL, std::system_category()});
  CHECK_THAT(f.to_string(), Catch::Contains("ranks:2: ") && Catch::Contains("\"node2\""));
}

TEST_CASE("a file without an endpoint, or none at all, is named", "[group]") {
  const list_file file{"# nobody\n"};
  CHECK_THAT(text_of_failure([&] { static_cast<void>(meeting::by_file(file.path(), 0)); }),
             Catch::Contains("ranks: no endpoint"));
  const failure f = failure_of([] { static_cast<void>(meeting::by_file("/no/such/file", 0)); });
  CHECK(f.code == std::error_code{ENOENT, std::system_category()});
  CHECK_THAT(f.to_string(), Catch::Contains("/no/such/file"));
}
