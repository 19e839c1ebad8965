#include "node/node.hpp"

#include "node/doubles.hpp"
#include "queue/completion_queue.hpp"

#include <sys/wait.h>

#include <catch2/catch.hpp>

#include <cstdlib>
#include <memory>
#include <set>
#include <vector>

using namespace softverbs;
using namespace std::chrono_literals;

namespace {

std::unique_ptr<completion_queue> a_queue() { return std::make_unique<completion_queue>(); }

}  // namespace

TEST_CASE("a node is one per process, and works again after its last release", "[node]") {
  test::upcalls().reset();
  for (int round = 0; round < 3; ++round) {
    node& first = node::acquire();
    node& second = node::acquire();
    CHECK(&first == &second);
    node::release(second);
    const std::uint32_t qpn = first.allocate_qpn();
    first.kick(qpn);
    CHECK(test::upcalls().wait([&] { return test::upcalls().runs[qpn] != 0; }));
    first.free_qpn(qpn);
    node::release(first);
    test::upcalls().reset();
  }
}

TEST_CASE("kicks that nobody runs any more do not shift those of the next start", "[node]") {
  test::upcalls().reset();
  for (std::uint32_t round = 0; round < 3; ++round) {
    node& local_node = node::acquire();
    std::vector<std::uint32_t> numbers;
    while (const std::uint32_t qpn = local_node.allocate_qpn()) numbers.push_back(qpn);
    for (const std::uint32_t qpn : numbers) local_node.kick(qpn);
    for (const std::uint32_t qpn : numbers) local_node.free_qpn(qpn);
    if (round < 2) node::release(local_node);  // While most still wait.
    if (round < 2) continue;
    CHECK(test::upcalls().wait([&] { return test::upcalls().runs[numbers.back()] != 0; }));
    node::release(local_node);
  }
}

TEST_CASE("QP numbers are distinct, carry the slot, and run out", "[node]") {
  test::node_user user;
  std::set<std::uint32_t> numbers;
  while (const std::uint32_t qpn = user.local_node.allocate_qpn()) {
    REQUIRE(numbers.insert(qpn).second);
    REQUIRE(qpn > 1);
    REQUIRE(slot_of(qpn) == user.local_node.slot());
    REQUIRE(user.local_node.find(qpn) != nullptr);
  }
  CHECK(numbers.size() == indices_max - 3);  // 0, 1 and 0xffffff are special.
  CHECK(user.local_node.find(*numbers.begin() ^ (1u << 23)) == nullptr);
  for (const std::uint32_t qpn : numbers) user.local_node.free_qpn(qpn);
  const std::uint32_t again = user.local_node.allocate_qpn();
  CHECK(numbers.count(again) == 1);
  user.local_node.free_qpn(again);
}

TEST_CASE("the engine runs what is kicked or due while nobody polls", "[node]") {
  std::vector<std::uint32_t> order;  // The engine writes it until `user` has gone.
  test::node_user user;
  test::seen& all = test::upcalls();
  const std::uint32_t kicked = user.local_node.allocate_qpn();
  const std::uint32_t later = user.local_node.allocate_qpn();
  const std::uint32_t soon = user.local_node.allocate_qpn();
  {
    const std::lock_guard lock{all.mutex};
    all.on_run = [&](std::uint32_t qpn) {
      const std::lock_guard inner{all.mutex};
      order.push_back(qpn);
    };
  }
  const auto now = clock::now();
  user.local_node.wake_at(later, now + 40ms);
  user.local_node.wake_at(soon, now + 20ms);
  user.local_node.wake_at(soon, now + 10h);  // The earlier one wins.
  user.local_node.kick(kicked);
  CHECK(all.wait([&] { return order.size() == 3; }));
  CHECK(clock::now() >= now + 40ms);
  CHECK(order == std::vector{kicked, soon, later});
  for (const std::uint32_t qpn : {kicked, later, soon}) user.local_node.free_qpn(qpn);
}

TEST_CASE("a forgotten deadline does not come", "[node]") {
  test::node_user user;
  test::seen& all = test::upcalls();
  const std::uint32_t forgotten = user.local_node.allocate_qpn();
  const std::uint32_t other = user.local_node.allocate_qpn();
  user.local_node.wake_at(forgotten, clock::now() + 10ms);
  user.local_node.wake_at(other, clock::now() + 20ms);
  user.local_node.wake_at(forgotten, clock::time_point::max());
  CHECK(all.wait([&] { return all.runs[other] != 0; }));
  CHECK(all.locked([&] { return all.runs[forgotten] == 0; }));
  user.local_node.free_qpn(forgotten);
  user.local_node.free_qpn(other);
}

TEST_CASE("a QP that kicks itself does not keep others from running", "[node]") {
  std::uint32_t greedy = 0;  // The engine reads them until `user` has gone.
  std::uint32_t modest = 0;
  test::node_user user;
  test::seen& all = test::upcalls();
  greedy = user.local_node.allocate_qpn();
  modest = user.local_node.allocate_qpn();
  {
    const std::lock_guard lock{all.mutex};
    all.on_run = [&](std::uint32_t qpn) {
      bool go_on = false;
      {
        const std::lock_guard inner{all.mutex};
        go_on = qpn == greedy && all.runs[modest] < 3;
      }
      user.local_node.kick(modest);
      if (go_on) user.local_node.kick(greedy);
    };
  }
  user.local_node.kick(greedy);
  CHECK(all.wait([&] { return all.runs[modest] >= 3; }));
  user.local_node.free_qpn(greedy);
  user.local_node.free_qpn(modest);
}

TEST_CASE("a poller takes over, and the engine takes the work back when polls stop", "[node]") {
  test::node_user user;
  test::seen& all = test::upcalls();
  const auto cq = a_queue();
  const std::uint32_t qpn = user.local_node.allocate_qpn();
  const std::uint32_t endless = user.local_node.allocate_qpn();
  const auto poll_until_taken_over = [&] {
    all.locked([&] {
      all.on_run = [&local_node = user.local_node, endless](std::uint32_t which) {
        if (which == endless) local_node.kick(endless);
      };
    });
    user.local_node.kick(endless);
    while (cq->empty_polls.load() < busy_polls - 1) user.local_node.on_empty_poll(*cq);
    while (cq->empty_polls.load() == busy_polls - 1) user.local_node.on_empty_poll(*cq);
    all.locked([&] { all.on_run = nullptr; });
  };
  poll_until_taken_over();
  user.local_node.kick(qpn);
  user.local_node.on_empty_poll(*cq);
  CHECK(all.wait([&] { return all.runs[qpn] == 1; }));
  // No poll from here on.
  user.local_node.kick(qpn);
  CHECK(all.wait([&] { return all.runs[qpn] == 2; }));
  CHECK(all.locked([&] { return all.ran_by != std::this_thread::get_id(); }));
  poll_until_taken_over();
  user.local_node.on_arm(*cq);
  user.local_node.kick(qpn);
  CHECK(all.wait([&] { return all.runs[qpn] == 3; }));
  user.local_node.free_qpn(qpn);
  user.local_node.free_qpn(endless);
}

TEST_CASE("polls take nothing from the engine while there is nothing to do", "[node]") {
  test::node_user user;
  const auto cq = a_queue();
  for (std::uint32_t n = 0; n <= busy_polls; ++n) user.local_node.on_empty_poll(*cq);
  CHECK(cq->empty_polls.load() == 0);
}

TEST_CASE("a forked child's node is abandoned, and the child gets one of its own", "[node]") {
  test::node_user user;
  const std::uint16_t slot = user.local_node.slot();
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int failed = 0;
    if (!user.local_node.abandoned() || !entry::needs_checks.load()) failed |= 1;
    node& own = node::acquire();
    if (own.abandoned() || own.slot() == slot || &own == &user.local_node) failed |= 2;
    node::release(own);
    node::release(user.local_node);
    ::_exit(failed);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK_FALSE(user.local_node.abandoned());
  CHECK_FALSE(entry::needs_checks.load());
}
