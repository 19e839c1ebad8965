#include "group/survivors.hpp"

#include "rank_process.hpp"
#include "ranks.hpp"
#include "reserved_port.hpp"
#include "support/descriptors.hpp"
#include "support/soak.hpp"

#include <cordma/coro/when_all.hpp>

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <random>
#include <set>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::expect;
using test::rank_process;

namespace {

/// A survivor has so long until it is told of a death; much less than `silence_max`.
constexpr std::chrono::seconds patience{20};

using teller = std::function<void(std::string)>;
enum class work : std::uint8_t { mixed, idle };

task<> sum_all(group& g, std::size_t elements) {
  std::vector<std::uint32_t> sum(elements, 1);
  co_await g.all_reduce(std::span{sum}, reduction::sum);
  expect(sum.front() == g.size() && sum.back() == g.size(), "a wrong sum");
}

task<> exchange_by_tag(group& g, local_mr& out, local_mr& in, std::size_t bytes) {
  const unsigned next = (g.rank() + 1) % g.size();
  const unsigned last = (g.rank() + g.size() - 1) % g.size();
  co_await when_all(g.send(out.first(bytes), next, 5), g.receive(in.slice(), last, 5));
}

/// Operations without an end, until a rank dies.
task<> do_operations(group& g, std::uint32_t seed) {
  std::mt19937 numbers{seed};
  local_mr in = g.runtime().memory().allocate_zeroed(100'000 * g.size());
  local_mr out = g.runtime().memory().allocate_zeroed(100'000 * g.size());
  for (;;) {
    const std::size_t bytes = numbers() % 2 == 0 ? 8 : 80'000;
    switch (numbers() % 8) {
      case 0: co_await g.barrier(); break;
      case 1: co_await sum_all(g, bytes); break;
      case 2: co_await g.all_to_all(in.first(bytes * g.size()), out.first(bytes * g.size())); break;
      case 3: co_await g.broadcast(in.first(bytes), unsigned(numbers()) % g.size()); break;
      case 4: co_await exchange_by_tag(g, out, in, bytes); break;
      case 5: {
        group half = co_await g.split(g.rank() % 2);
        co_await half.barrier();
        break;
      }
      case 6: co_await when_all(sum_all(g, 8), sum_all(g, bytes), g.barrier()); break;
      default: co_await g.runtime().executor().sleep_for(duration{});
    }
  }
}

/// Works until the group fails, and goes on with the survivors. Returns the bytes of the pool,
/// which stays with the runtime.
task<std::size_t> live(runtime& rt, const endpoint& where, unsigned rank, unsigned size,
                       unsigned deaths, std::uint32_t seed, work how, const group_options& options,
                       const teller& say) {
  group g = co_await group::join(rt, meeting::at(where, rank, size), options);
  co_await g.barrier();
  say("joined");
  while (!g.why_failed()) {
    try {
      if (how == work::mixed) co_await do_operations(g, seed);
      co_await g.receive({});
    } catch (const error& e) {
      if (e.failure().code != errc::rank_failed) say("failed: " + e.failure().to_string());
    }
  }
  say("told " + g.why_failed()->to_string());
  while (g.size() > size - deaths || g.why_failed()) {
    try {
      if (!g.why_failed()) co_await g.receive({});  // Waits for the next death.
      group next = co_await g.shrink();
      g = std::move(next);
      for (unsigned n = 0; n < 3; ++n) co_await sum_all(g, n == 1 ? 20'000 : 1);
    } catch (const error& e) {
      if (e.failure().code != errc::rank_failed) say("failed: " + e.failure().to_string());
    }
  }
  const unsigned left = g.size();
  const std::size_t pool_bytes = g.counters().receive_bytes;
  co_await std::exchange(g, group{}).leave();
  say("left " + std::to_string(left));
  co_return pool_bytes;
}

/// Returns what is left of a group, whose connections the runtime has closed.
std::string leftovers_of(runtime& rt, std::multiset<std::string> before, std::size_t in_use) {
  std::string held;
  for (const std::string& one : test::descriptors())
    if (const auto at = before.find(one); at != before.end())
      before.erase(at);
    else
      held += one + ", ";
  const std::size_t bytes = rt.memory().statistics().in_use_bytes;
  if (bytes > in_use) held += std::to_string(bytes - in_use) + " bytes";
  return held.empty() ? "nothing" : held;
}

task<> join_single(runtime& rt, const group_options& options) {
  group g = co_await group::join(rt, meeting::single(), options);
  co_await g.barrier();
}

/// Works until the group fails, goes on with the survivors, and stays until it is killed.
task<> live_and_stay(runtime& rt, const endpoint& where, unsigned rank, unsigned size,
                     const group_options& options, const teller& say) {
  group g = co_await group::join(rt, meeting::at(where, rank, size), options);
  co_await g.barrier();
  say("joined");
  const auto worked = co_await as_result(do_operations(g, 7));
  say("told " + worked.failure().to_string());
  group rest = co_await g.shrink();
  say("goes on with " + std::to_string(rest.size()));
  co_await rest.receive({}, (rest.rank() + 1) % rest.size());
}

void live_in_process(const endpoint& where, unsigned rank, unsigned size, unsigned deaths,
                     std::uint32_t seed, work how, const group_options& options,
                     const teller& say) {
  runtime rt{test::on_test_device()};
  rt.run(join_single(rt, options));
  const std::multiset<std::string> open = test::descriptors();
  const std::size_t in_use = rt.memory().statistics().in_use_bytes;
  const std::size_t pool = rt.run(live(rt, where, rank, size, deaths, seed, how, options, say));
  say("held: " + leftovers_of(rt, open, in_use + pool));
}

class company {
 public:
  company(unsigned size, unsigned deaths, std::uint32_t seed, work how,
          const group_options& options) {
    const endpoint where = port_.address();
    for (unsigned r = 0; r < size; ++r)
      all_.emplace_back([=](const teller& say) {
        live_in_process(where, r, size, deaths, seed, how, options, say);
      });
  }
  [[nodiscard]] rank_process& operator[](unsigned r) { return all_[r]; }
  [[nodiscard]] unsigned size() const { return unsigned(all_.size()); }

 private:
  const test::reserved_port port_;
  std::vector<rank_process> all_;
};

/// Has some ranks die when they have worked for a while, and checks what the others say.
void check_deaths(unsigned size, std::set<unsigned> victims, std::uint32_t seed, work how,
                  int signal = SIGKILL, const group_options& options = {}) {
  INFO(size << " ranks, signal " << signal << (how == work::idle ? ", idle" : ""));
  INFO("connected at once: " << options.connect_at_once);
  company all{size, unsigned(victims.size()), seed, how, options};
  for (unsigned r = 0; r < size; ++r) REQUIRE(all[r].line(patience) == "joined");
  std::mt19937 numbers{seed};
  for (const unsigned v : victims) {
    expect(all[v].line(std::chrono::microseconds{numbers() % 3000}).empty() || victims.size() > 1,
           "a victim works");
    all[v].signal(signal);
  }
  const std::string named =
      victims.size() == 1 ? "rank " + std::to_string(*victims.begin()) : "rank ";
  for (unsigned r = 0; r < size; ++r) {
    if (victims.contains(r)) continue;
    INFO("rank " << r);
    REQUIRE_THAT(all[r].line(patience), Catch::StartsWith("told ") && Catch::Contains(named));
    REQUIRE(all[r].line(patience) == "left " + std::to_string(size - victims.size()));
    REQUIRE(all[r].line(patience) == "held: nothing");
  }
}

/// Has a rank die while the ranks join, or soon after. The others join, and are told, or cannot.
void check_death_in_join(unsigned size, unsigned victim, std::uint32_t seed) {
  group_options options;
  options.join_timeout = 1s;
  options.connect_at_once = seed % 2 == 0;
  company all{size, 1, seed, work::mixed, options};
  std::mt19937 numbers{seed};
  const bool has_joined = !all[victim].line(std::chrono::microseconds{numbers() % 30'000}).empty();
  all[victim].signal(SIGKILL);
  for (unsigned r = 0; r < size; ++r) {
    if (r == victim) continue;
    INFO("rank " << r << ", has joined: " << has_joined);
    std::string line = all[r].line(patience);
    if (line == "joined") line = all[r].line(patience);
    INFO(line);
    REQUIRE((line.starts_with("told ") || line.starts_with("failed: ")));
    if (line.starts_with("failed: ")) continue;
    REQUIRE_THAT(line, Catch::Contains("rank " + std::to_string(victim)));
    REQUIRE_THAT(all[r].line(patience), Catch::StartsWith("left "));
    REQUIRE(all[r].line(patience) == "held: nothing");
  }
}

/// One death, or two, at a random moment of random work.
void check_any_death(std::uint32_t seed) {
  INFO("seed " << seed);
  std::mt19937 numbers{seed};
  const auto size = unsigned(2 + numbers() % 4);
  const auto victim = unsigned(numbers() % size);
  const auto how = numbers() % 4 == 0 ? work::idle : work::mixed;
  std::set<unsigned> victims{victim};
  group_options options;
  options.connect_at_once = numbers() % 2 == 0;
  switch (numbers() % 8) {
    case 0: return check_death_in_join(size, victim, seed);
    case 1:
      options.silence_max = 300ms;
      // Ranks without a connection to the victim are told of it by others, if any has one.
      return check_deaths(size, victims, seed, options.connect_at_once ? how : work::mixed, SIGSTOP,
                          options);
    case 2:
    case 3:
      if (size > 2) victims.insert((victim + 1) % size);
      break;
    default: break;
  }
  check_deaths(size, victims, seed, how, SIGKILL, options);
}

}  // namespace

TEST_CASE("a descriptor that is closed while it is listed is none", "[group_death]") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const test::listed_descriptor unix_socket{ends[0]};
  CHECK(unix_socket.kind() == std::nullopt);
  ::close(ends[0]);
  CHECK(unix_socket.kind() == std::nullopt);
  ::close(ends[1]);

  const int tcp = ::socket(AF_INET, SOCK_STREAM, 0);
  const test::listed_descriptor stream{tcp};
  CHECK(stream.kind() == "socket");
  const int other = ::eventfd(0, 0);
  REQUIRE(::dup2(other, tcp) == tcp);
  CHECK(stream.kind() == std::nullopt);
  CHECK(test::listed_descriptor{tcp}.kind() == "anon_inode");
  ::close(other);
  ::close(tcp);
}

TEST_CASE("each survivor is told of a rank that is killed, by name, and goes on without it",
          "[group_death][device]") {
  for (std::uint32_t seed = 0; seed < 4; ++seed)
    check_deaths(4, {seed}, seed, seed % 2 == 0 ? work::mixed : work::idle);
}

TEST_CASE("ranks that die one after the other are left out, also while others shrink",
          "[group_death][device]") {
  check_deaths(4, {0, 1}, 5, work::mixed);
  check_deaths(5, {1, 4}, 6, work::idle);
}

TEST_CASE("a rank that is stopped is noticed by its silence", "[group_death][device]") {
  check_deaths(3, {1}, 7, work::mixed, SIGSTOP, {.silence_max = 300ms});
}

TEST_CASE("a rank that is stopped is noticed by those that wait for a message of any rank",
          "[group_death][device]") {
  group_options options;
  options.connect_at_once = true;
  options.silence_max = 300ms;
  // On soft0 a stopped process acknowledges no heartbeat.
  options.connections.heartbeat = {.interval = 1h};
  check_deaths(3, {1}, 8, work::idle, SIGSTOP, options);
}

TEST_CASE("a rank that was stopped, and is resumed when the others go on, is told so",
          "[group_death][device]") {
  const group_options options{.silence_max = 300ms};
  const test::reserved_port port;
  std::vector<rank_process> all;
  for (unsigned r = 0; r < 3; ++r)
    all.emplace_back([&, r](const teller& say) {
      runtime rt{test::on_test_device()};
      rt.run(live_and_stay(rt, port.address(), r, 3, options, say));
    });
  for (rank_process& one : all) REQUIRE(one.line(patience) == "joined");
  const unsigned stopped = GENERATE(0u, 2u);
  all[stopped].signal(SIGSTOP);
  for (unsigned r = 0; r < 3; ++r) {
    if (r == stopped) continue;
    REQUIRE_THAT(all[r].line(patience), Catch::StartsWith("told "));
    REQUIRE(all[r].line(patience) == "goes on with 2");
  }
  all[stopped].signal(SIGCONT);
  REQUIRE_THAT(all[stopped].line(patience), Catch::StartsWith("told "));
  CHECK_THAT(all[stopped].line(patience), Catch::Contains("the others have cut off this one"));
  // That cost the survivors nothing.
  for (unsigned r = 0; r < 3; ++r)
    if (r != stopped) CHECK(all[r].line(0s).empty());
}

TEST_CASE("a rank that is killed while ranks join keeps no other waiting",
          "[group_death][device]") {
  for (std::uint32_t seed = 0; seed < 4; ++seed) check_death_in_join(3, seed % 3, seed);
}

TEST_CASE("ranks die at any moment, and the others are told and hold nothing",
          "[.soak-rank-deaths][group_death][device]") {
  const std::uint64_t seed = test::soak::seed();
  for (std::uint64_t n = test::soak::count(1000); n > 0; --n)
    check_any_death(std::uint32_t(seed + n));
}
