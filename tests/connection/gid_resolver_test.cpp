#include "connection/gid_resolver.hpp"

#include "connection/bootstrap_services.hpp"
#include "connection/connection_resources.hpp"
#include "support/connected_pair.hpp"
#include "support/leaks.hpp"
#include "support/manual_executor.hpp"
#include "support/memory_host.hpp"
#include "support/raw_peer.hpp"
#include "support/some_hello.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

using namespace cordma;
using namespace std::chrono_literals;
using detail::gid_resolver;
using support::started;

namespace {

constexpr auto patience = 20s;

/// While the gate is closed, the kernel's searches take as long as the test likes.
class gate {
 public:
  void set_closed(bool closed) {
    const std::lock_guard lock{mutex_};
    is_closed_ = closed;
    if (closed) searching_max_ = 0;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock{mutex_};
    searching_max_ = std::max(searching_max_, ++searching_);
    changed_.wait_for(lock, patience, [&] { return !is_closed_; });
    --searching_;
  }
  std::size_t searching() {
    const std::lock_guard lock{mutex_};
    return searching_;
  }
  std::size_t searching_max() {
    const std::lock_guard lock{mutex_};
    return searching_max_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
  std::size_t searching_ = 0;
  std::size_t searching_max_ = 0;
};

gate the_gate;
std::atomic<int> search_error = 0;  ///< If not 0, the kernel finds no way.

struct closed_gate {
  closed_gate() { the_gate.set_closed(true); }
  closed_gate(closed_gate&&) = delete;
  ~closed_gate() { the_gate.set_closed(false); }
};

gid_resolver& resolver(runtime& rt) { return rt.resources().bootstraps.gids; }

task<> search(runtime& rt) {
  const verbs::port_info port = rt.context().active_port();
  const verbs::gid_entry own = verbs::choose_gid(rt.context().gid_table(port.number));
  return resolver(rt).resolve(port.number, verbs::address_vector::by_gid(own.gid, own.index));
}

void run_until(runtime& rt, auto condition) {
  rt.run(with_timeout(test::until(rt.executor(), condition), patience));
}

void run_until_searching(runtime& rt, std::size_t count) {
  run_until(rt, [=] { return the_gate.searching() == count; });
}

void run_until_none_is_left(runtime& rt) {
  run_until(rt, [&] { return resolver(rt).searches() == 0; });
}

/// Tells whether a thread of this process sleeps, rather than runs or waits for a processor.
bool is_asleep(pid_t thread) {
  std::string stat;
  std::getline(std::ifstream{"/proc/self/task/" + std::to_string(thread) + "/stat"}, stat);
  return stat.find(") S") != std::string::npos;
}

/// Makes the process unable to start threads: each would have a stack above all memory.
class no_threads {
 public:
  no_threads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, std::size_t{1} << 48);
    REQUIRE(::pthread_setattr_default_np(&attributes) == 0);
    ::pthread_attr_destroy(&attributes);
  }
  no_threads(no_threads&&) = delete;
  ~no_threads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_{};
};

/// A listener that looks for the way to a client with a GID of its own choice.
struct foreign_client {
  task<> speak() {
    test::raw_peer peer = co_await stream_socket::connect(
        pair.rt.executor(), socket_address::loopback(acceptor->local_endpoint().port));
    handshake::hello hello = pair.client.local_hello();
    hello.gid.raw[15] ^= 0x55;
    co_await test::greet(peer, hello);
    const auto answer = co_await as_result(bootstrap::read_hello(peer));
    // A kernel that finds nobody has the listener refuse, and say why.
    is_answered =
        answer.has_value() || (answer.has_failure() && answer.failure().code == errc::refused);
  }
  [[nodiscard]] bool is_possible() { return pair.rt.context().active_port().is_ethernet(); }

  test::connected_pair pair;
  std::optional<listener> acceptor{pair.rt.listen({}, {}, {.allow_foreign_gid = true})};
  bool is_answered = false;
};

}  // namespace

// The library's calls lead here, and from here to libibverbs.
extern "C" ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  static auto* const next =
      reinterpret_cast<decltype(&ibv_create_ah)>(::dlsym(RTLD_NEXT, "ibv_create_ah"));
  if (search_error != 0) {
    errno = search_error;
    return nullptr;
  }
  ibv_ah* const made = next(pd, attributes);  // From now on the domain is in use.
  the_gate.pass();
  return made;
}

TEST_CASE("a stop of the wait for a GID ends it at once, while the kernel still searches",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  std::optional<closed_gate> closed{std::in_place};
  started waiting{rt.executor(), search(rt)};
  run_until_searching(rt, 1);
  waiting.request_stop();
  rt.run(test::due_timers_fired());
  REQUIRE(waiting.has_ended());
  CHECK(the_gate.searching() == 1);
  CHECK_THROWS_AS((*waiting).take(), cancelled);
  closed.reset();
  run_until_none_is_left(rt);
}

TEST_CASE("a task that is destroyed while the kernel searches leaves the search behind",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  std::optional<closed_gate> closed{std::in_place};
  std::optional<started<task<>>> dropped{std::in_place, rt.executor(), search(rt)};
  run_until_searching(rt, 1);
  dropped.reset();
  CHECK(the_gate.searching() == 1);
  closed.reset();
  run_until_none_is_left(rt);
  CHECK_NOTHROW(rt.run(search(rt)));
}

TEST_CASE("the end of a runtime waits for the searches that are left, and leaves nothing",
          "[connection][device]") {
  const std::string before = test::holdings();
  auto rt = std::make_unique<runtime>(test::on_test_device());
  const closed_gate closed;
  {
    const started<task<>> dropped[]{{rt->executor(), search(*rt)}, {rt->executor(), search(*rt)}};
    run_until_searching(*rt, 2);
  }
  const std::jthread opener{[waiting = ::gettid()] {
    const auto queues = [] {
      return verbs_faults::live_objects()[std::size_t(verbs_faults::kind::cq)];
    };
    while (queues() > 0 || !is_asleep(waiting)) std::this_thread::yield();
    the_gate.set_closed(false);
  }};
  rt.reset();
  CHECK(the_gate.searching() == 0);
  CHECK(test::holdings() == before);
}

TEST_CASE("searches for GIDs have a limit, which abandoned ones count for; the next ones wait",
          "[connection][device]") {
  constexpr std::size_t limit = gid_resolver::searches_max;
  runtime rt{test::on_test_device()};
  std::optional<closed_gate> closed{std::in_place};
  std::deque<started<task<>>> tasks;
  for (std::size_t i = 0; i < limit; ++i) tasks.emplace_back(rt.executor(), search(rt));
  run_until_searching(rt, limit);
  started next{rt.executor(), search(rt)};
  started stopped{rt.executor(), search(rt)};
  stopped.request_stop();
  tasks.clear();
  rt.run(test::due_timers_fired());
  CHECK(resolver(rt).searches() == limit);
  CHECK_FALSE(next.has_ended());
  REQUIRE(stopped.has_ended());
  CHECK_THROWS_AS((*stopped).take(), cancelled);
  closed.reset();
  run_until(rt, [&] { return next.has_ended(); });
  CHECK_NOTHROW((*next).take());
  run_until_none_is_left(rt);
  CHECK(the_gate.searching_max() == limit);
}

TEST_CASE("datagrams to addresses that nobody has keep no handshake from its search",
          "[connection][device]") {
  constexpr std::size_t limit = gid_resolver::searches_max;
  runtime rt{test::on_test_device()};
  if (!rt.context().active_port().is_ethernet()) return;  // A LID needs no search.
  datagram_socket socket = rt.open_datagram();
  std::optional<closed_gate> closed{std::in_place};
  std::deque<started<task<>>> tasks;
  for (std::size_t i = 0; i <= limit; ++i)
    tasks.emplace_back(rt.executor(), socket.find_route(socket.address()));
  run_until_searching(rt, limit);
  tasks.emplace_back(rt.executor(), search(rt));
  run_until_searching(rt, limit + 1);
  CHECK(rt.resources().bootstraps.datagram_gids.searches() == limit);
  CHECK_FALSE(tasks[limit].has_ended());
  closed.reset();
  run_until(rt, [&] { return tasks.back().has_ended() && tasks[limit].has_ended(); });
  run_until(rt, [&] { return rt.resources().bootstraps.datagram_gids.searches() == 0; });
  run_until_none_is_left(rt);
}

TEST_CASE("a GID that nobody has is named, with the kernel's reason", "[connection][device]") {
  runtime rt{test::on_test_device()};
  search_error = EHOSTUNREACH;
  const auto found = rt.run(as_result(search(rt)));
  search_error = 0;
  REQUIRE(found.has_failure());
  CHECK(found.failure().code == std::error_code{EHOSTUNREACH, std::system_category()});
  CHECK_THAT(found.failure().to_string(), Catch::Contains("no way to the peer's GID"));
}

TEST_CASE("a datagram to a GID that nobody has fails by name, and counts", "[connection][device]") {
  runtime rt{test::on_test_device()};
  datagram_socket socket = rt.open_datagram();
  const local_mr memory = rt.memory().allocate_zeroed(8);
  search_error = EHOSTUNREACH;
  const auto sent = rt.run(as_result(socket.send_to(socket.address(), memory)));
  search_error = 0;
  REQUIRE(sent.has_failure());
  CHECK(sent.failure().code == std::error_code{EHOSTUNREACH, std::system_category()});
  CHECK(rt.metrics().datagrams.routes_failed == 1);
  CHECK(rt.run(socket.send_to(socket.address(), memory)) == 8);
}

TEST_CASE("where no thread can be made, a search for a GID says so, and keeps no permit",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  std::optional<no_threads> without{std::in_place};
  for (std::size_t i = 0; i < gid_resolver::searches_max; ++i) {
    CHECK_THROWS_WITH(rt.run(search(rt)), Catch::Contains("no thread to look for"));
  }
  without.reset();
  CHECK_NOTHROW(rt.run(with_timeout(search(rt), patience)));
}

TEST_CASE("on a host without threads a search for a GID is made at once", "[connection][device]") {
  test::memory_host host;
  runtime_options options;
  options.executor = test::on_memory(host);
  runtime rt{test::on_test_device(std::move(options))};
  const no_threads without;
  const started found{rt.executor(), search(rt)};
  CHECK(found.has_ended());
  CHECK(resolver(rt).searches() == 0);
  search_error = EHOSTUNREACH;
  CHECK_THROWS_WITH(rt.run(search(rt)), Catch::Contains("no way to the peer's GID"));
  search_error = 0;
}

TEST_CASE("while a listener looks for the way to a client, the executor serves others",
          "[connection][device]") {
  foreign_client foreign;
  if (!foreign.is_possible()) return;
  std::optional<closed_gate> closed{std::in_place};
  bool was_served_meanwhile = false;
  const auto serve_others = [&]() -> task<> {
    co_await with_timeout(
        test::until(foreign.pair.rt.executor(), [] { return the_gate.searching() == 1; }),
        patience);
    co_await foreign.pair.open({});
    was_served_meanwhile =
        foreign.pair.client.is_open() && the_gate.searching() == 1 && !foreign.is_answered;
    closed.reset();
  };
  foreign.pair.rt.run(when_all(foreign.speak(), serve_others()));
  CHECK(was_served_meanwhile);
  CHECK(foreign.is_answered);
}

TEST_CASE("a listener that looks for the way to a client closes without waiting for the search",
          "[connection][device]") {
  foreign_client foreign;
  if (!foreign.is_possible()) return;
  const closed_gate closed;
  bool was_closed_meanwhile = false;
  const auto close = [&]() -> task<> {
    co_await with_timeout(
        test::until(foreign.pair.rt.executor(), [] { return the_gate.searching() == 1; }),
        patience);
    co_await foreign.acceptor->close();
    was_closed_meanwhile = the_gate.searching() == 1;
  };
  foreign.pair.rt.run(when_all(foreign.speak(), close()));
  CHECK(was_closed_meanwhile);
  CHECK_FALSE(foreign.is_answered);
}
