// Ranks that mpirun starts: this program runs itself under mpirun, as the ranks of `[.rank]`.
#include "group/meeting_host.hpp"
#include "group/meeting_kinds.hpp"
#include "meetings.hpp"
#include "support/commands.hpp"
#include "support/outcome.hpp"
#include "support/skip.hpp"
#include "support/variable.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/messages/message_stream.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>
#include <sstream>

using namespace cordma;

/// Tells LeakSanitizer that what libpmix keeps until the process ends is no leak of cordma's.
extern "C" const char* __lsan_default_suppressions();   // NOLINT: the sanitizer's name.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT
  return "leak:libpmix.so\n";
}

namespace {

constexpr const char* role_variable = "CORDMA_TEST_RANK_ROLE";

/// Returns why there are no such ranks; null: there are.
const char* why_not() {
  if (!detail::has_pmix()) return "there is no PMIx";
  if (test::run("mpirun --version").exit_status != 0) return "there is no mpirun";
  return nullptr;
}

/// Runs ranks with a role, and gives what they say, a line each.
struct ranks {
  ranks(unsigned size, const char* role) {
    const std::string own = std::filesystem::read_symlink("/proc/self/exe");
    all = test::run(
        "env -u CORDMA_TEST_LOG OMPI_ALLOW_RUN_AS_ROOT=1 "
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -s KILL 60 mpirun --oversubscribe -n " +
        std::to_string(size) + " -x " + role_variable + "=" + role + " '" + own + "' '[.rank]'");
    std::istringstream text{all.output};
    for (std::string line; std::getline(text, line);)
      if (line.starts_with("rank ")) lines.push_back(line);
    std::ranges::sort(lines);
  }
  test::outcome all;
  std::vector<std::string> lines;
};

std::string hex(const detail::group_name& name) {
  std::string text;
  for (const std::byte one : name) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(one) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(one) & 15];
  }
  return text;
}

std::string variable_or_empty(const char* name) {
  const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return text != nullptr ? text : "";
}

/// One rank's part.
class launched_rank {
 public:
  /// Meets, and says of whom it has learnt, or why not.
  task<> meet() {
    const group_options options;
    const meeting own = meeting::by_launcher();
    const endpoint where = co_await own.kind().where_to_listen(rt_);
    listener acceptor = rt_.listen(where);
    detail::group_member self{acceptor.local_endpoint().to_string(),
                              detail::host_number(rt_, options)};
    auto got = co_await as_result(test::meet(own, rt_, options, self));
    if (got.has_failure()) co_return say(got.failure().to_string());
    CHECK(got->members.at(got->rank).endpoint == self.endpoint);
    std::set<std::uint64_t> hosts;
    for (const detail::group_member& one : got->members) hosts.insert(one.host);
    const std::string next = got->members[(got->rank + 1) % got->members.size()].endpoint;
    co_await when_all(ask(next), answer(acceptor));
    say(std::to_string(got->rank) + " of " + std::to_string(got->members.size()) + " on " +
        std::to_string(hosts.size()) + " host at " + where.host + ", group " + hex(got->name));
  }
  runtime& rt() noexcept { return rt_; }

  /// Connects to another rank, and hears it.
  task<> ask(endpoint other) {
    message_stream stream{co_await rt_.connect(other)};
    static_cast<void>(co_await stream.receive());
    co_await stream.close();
  }
  static task<> answer(listener& acceptor) {
    message_stream stream{co_await acceptor.accept()};
    const std::vector<std::byte> word(1);
    co_await stream.send(word);
    co_await stream.close();
  }
  static void say(const std::string& text) {
    const std::string line = "rank " + text + '\n';
    CHECK(::write(STDOUT_FILENO, line.data(), line.size()) == ssize_t(line.size()));
  }

 private:
  runtime rt_{test::on_test_device()};
};

}  // namespace

TEST_CASE("a rank that a launcher started", "[.rank]") {
  const std::string role = variable_or_empty(role_variable);
  launched_rank own;
  const auto play = [&]() -> task<> {
    co_await own.meet();
    if (role == "twice") co_await own.meet();
  };
  own.rt().run(play());
}

TEST_CASE("ranks that mpirun starts meet by PMIx, and reach each other", "[group][device]") {
  if (const char* const reason = why_not()) CORDMA_SKIP(reason);
  const ranks four{4, "meet"};
  INFO(four.all.output);
  CHECK(four.all.exit_status == 0);
  REQUIRE(four.lines.size() == 4);
  const std::string group = four.lines[0].substr(four.lines[0].find("group "));
  for (unsigned rank = 0; rank < 4; ++rank)
    CHECK(four.lines[rank] ==
          "rank " + std::to_string(rank) + " of 4 on 1 host at 127.0.0.1, " + group);
}

TEST_CASE("ranks that mpirun starts meet as often as they like", "[group][device]") {
  if (const char* const reason = why_not()) CORDMA_SKIP(reason);
  const ranks two{2, "twice"};
  INFO(two.all.output);
  CHECK(two.all.exit_status == 0);
  REQUIRE(two.lines.size() == 4);
  std::set<std::string> groups;
  for (const std::string& line : two.lines) groups.insert(line.substr(line.find("group ")));
  CHECK(groups.size() == 2);
}

TEST_CASE("a process that no launcher started is told so", "[group][device]") {
  const std::string own = std::filesystem::read_symlink("/proc/self/exe");
  const test::outcome single =
      test::run("env -u CORDMA_TEST_LOG -u PMIX_RANK -u PMIX_NAMESPACE " +
                std::string{role_variable} + "=meet '" + own + "' '[.rank]'");
  INFO(single.output);
  CHECK_THAT(single.output, Catch::Contains("cordma: no launcher's variables") &&
                                Catch::Contains("rank 0 of 1 on 1 host at 127.0.0.1"));
}
