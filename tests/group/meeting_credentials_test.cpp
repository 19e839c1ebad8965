// Ranks that meet only with those that have their key.
#include "group/meeting_kinds.hpp"

#include "meetings.hpp"
#include "reserved_port.hpp"
#include "support/outcome.hpp"

#include <cordma/security/credentials.hpp>

#include <catch2/catch.hpp>

#include <chrono>

using namespace cordma;
using namespace std::chrono_literals;
using test::code_of;

namespace {

credentials key_of(unsigned char fill) {
  return credentials::psk({"ranks", std::vector(32, std::byte{fill})});
}

group_options with_key(const credentials* key) {
  group_options options;
  options.connections.credentials = key;
  options.join_timeout = 60s;
  return options;
}

}  // namespace

TEST_CASE("ranks with one key meet where others can reach rank 0", "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  const credentials key = key_of(7);
  test::check_rosters(test::meet_all(
      rt, {meeting::at({"0.0.0.0", port.number()}, 0, 2), meeting::at(port.address(), 1, 2)},
      with_key(&key)));
}

TEST_CASE("a rank without the key does not meet the others", "[group][device]") {
  runtime rt{test::on_test_device()};
  const test::reserved_port port;
  const credentials key = key_of(7), other = key_of(8);
  for (const credentials* theirs : {static_cast<const credentials*>(nullptr), &other}) {
    std::vector<result<detail::roster>> all(2, cancelled_result);
    rt.run(with_scope([&](scope& running) -> task<> {
      const auto meet = [&](unsigned rank, const credentials* with) -> task<> {
        const meeting where = meeting::at(port.address(), rank, 2);
        const group_options options = with_key(with);
        all[rank] = co_await as_result(test::meet(where, rt, options, test::some_member(rank)));
      };
      running.spawn(meet, 0U, &key);
      co_await meet(1U, theirs);
      running.request_stop();
    }));
    CHECK(all[0].is_cancelled());  // Rank 0 went on waiting for one with its key.
    CHECK(code_of(all[1]) ==
          (theirs == nullptr ? errc::incompatible_peer : errc::not_authenticated));
  }
}
