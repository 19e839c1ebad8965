// A runtime tells the program's hook who connected, was refused or lost, and why.
#include "runtime/async_events.hpp"

#include "io/logger.hpp"
#include "support/allocations.hpp"
#include "support/connection_socket.hpp"
#include "support/lease_pair.hpp"
#include "support/runtime_group.hpp"
#include "support/temporary_folder.hpp"
#include "support/variable.hpp"

#include <cordma/base/event_log.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::connected_pair;
using test::variable;

namespace {

/// A record that outlives its hook's call.
struct logged_event {
  event_log::kind event;
  event_log::level level;
  std::string peer, identity, local, bootstrap, note;
  std::uint32_t qpn;
  std::uint64_t bytes;
  std::optional<failure> why;
};

/// The records of hooks, from the runtimes of any threads.
class all_records {
 public:
  [[nodiscard]] event_log options(event_log::level level = event_log::level::debug) {
    return {.hook = [this](const event_log::record& r) { add(r); }, .least_urgent = level};
  }
  [[nodiscard]] runtime_options of_runtime(event_log::level level = event_log::level::debug) {
    runtime_options o;
    o.log = options(level);
    return test::on_test_device(std::move(o));
  }
  [[nodiscard]] std::vector<logged_event> of(event_log::kind event) const {
    const std::lock_guard held{lock_};
    std::vector<logged_event> found;
    std::ranges::copy_if(all_, std::back_inserter(found),
                         [&](const logged_event& one) { return one.event == event; });
    return found;
  }
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard held{lock_};
    return all_.size();
  }

 private:
  void add(const event_log::record& r) {
    const std::lock_guard held{lock_};
    all_.push_back({.event = r.kind,
                    .level = r.level,
                    .peer = std::string{r.peer},
                    .identity = std::string{r.identity},
                    .local = std::string{r.local},
                    .bootstrap = std::string{r.bootstrap},
                    .note = std::string{r.note},
                    .qpn = r.qpn,
                    .bytes = r.bytes,
                    .why = r.why != nullptr ? std::optional{*r.why} : std::nullopt});
  }
  mutable std::mutex lock_;
  std::vector<logged_event> all_;
};

/// A pair whose server lends, and whose runtime logs.
struct logged_pair : all_records, connected_pair {
  explicit logged_pair(event_log::level level = event_log::level::debug)
      : connected_pair{of_runtime(level), connection_options{}, test::leases::lends(strength())} {}
  static isolation strength() { return test::leases::strengths().back(); }
  /// Runs until the server has no open lease.
  void settle() {
    rt.run(test::until(rt.executor(), [this] { return server.lending().open == 0; }));
  }
};

/// Standard error as a pipe.
class captured_errors {
 public:
  captured_errors() {
    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    from_ = unique_fd{ends[0]};
    before_ = unique_fd{::dup(STDERR_FILENO)};
    REQUIRE(::dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    ::close(ends[1]);
  }
  captured_errors(const captured_errors&) = delete;
  ~captured_errors() { restore(); }
  /// Returns what was written. Standard error is as before from now on.
  std::string text() {
    restore();
    std::string all;
    std::array<char, 4096> part{};
    while (const ssize_t n = ::read(from_.get(), part.data(), part.size())) {
      if (n < 0) break;
      all.append(part.data(), std::size_t(n));
    }
    return all;
  }

 private:
  void restore() {
    if (before_.is_open()) ::dup2(before_.get(), STDERR_FILENO);
    before_ = {};
  }
  unique_fd from_;
  unique_fd before_;
};

std::array<unique_fd, 2> stream_pair() {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  return {unique_fd{ends[0]}, unique_fd{ends[1]}};
}

void refuse_all(connection_request& request) { request.refuse("not \x1b[2Jtoday\n"); }

}  // namespace

TEST_CASE("each end of a connection is logged: with whom, how, and when it is closed",
          "[runtime][device]") {
  logged_pair p;
  const auto connected = p.of(event_log::kind::connected);
  REQUIRE(connected.size() == 2);
  for (const connection* const end : {&p.client, &p.server}) {
    const auto found = std::ranges::find(connected, end->peer().to_string(), &logged_event::peer);
    REQUIRE(found != connected.end());
    CHECK(found->level == event_log::level::info);
    CHECK(found->local == end->local().to_string());
    CHECK(found->bootstrap == "tcp");
    CHECK(found->qpn != 0);
    CHECK(found->qpn != end->peer_qpn());
    CHECK_THAT(found->note,
               Catch::StartsWith("RC, MTU ") && Catch::Contains(", agent, peer cordma"));
    CHECK_FALSE(found->why);
  }
  const std::string client_peer = p.client.peer().to_string();
  const std::string server_peer = p.server.peer().to_string();
  p.rt.run(when_all(p.client.close(), p.server.ended()));
  p.rt.run(p.server.close());
  const auto closed = p.of(event_log::kind::closed);
  REQUIRE(closed.size() == 2);
  std::map<std::string, std::string> by;
  for (const logged_event& one : closed) by[one.peer] = one.note;
  CHECK(by[client_peer] == "by this side");
  CHECK(by[server_peer] == "by the peer");
  CHECK(p.of(event_log::kind::lost).empty());
}

TEST_CASE("a connection that is dropped is closed by this side", "[runtime][device]") {
  logged_pair p;
  const std::string peer = p.client.peer().to_string();
  p.client = {};
  p.rt.run(p.server.ended());
  const auto closed = p.of(event_log::kind::closed);
  REQUIRE(closed.size() == 1);
  CHECK(closed.front().peer == peer);
  CHECK(closed.front().note == "by this side");
  CHECK(p.of(event_log::kind::lost).size() == 1);  // The peer was not told.
}

TEST_CASE("a connection whose peer goes without a word is lost, and why is told",
          "[runtime][device]") {
  logged_pair p;
  REQUIRE(::shutdown(test::socket_of(p.server), SHUT_RDWR) == 0);
  p.rt.run(when_all(p.client.ended(), p.server.ended()));
  const auto lost = p.of(event_log::kind::lost);
  REQUIRE(lost.size() == 2);
  const auto found = std::ranges::find(lost, p.client.peer().to_string(), &logged_event::peer);
  REQUIRE(found != lost.end());
  CHECK(found->level == event_log::level::warning);
  REQUIRE(found->why);
  CHECK(found->why->code == errc::disconnected);
  CHECK(found->why->call == std::string_view{"hang_up"});
  CHECK(found->why->object.number == found->qpn);
  CHECK(p.of(event_log::kind::closed).empty());
}

TEST_CASE("a connect that fails is logged with the server's name; one that is stopped is not",
          "[runtime][device]") {
  all_records log;
  runtime rt{log.of_runtime()};
  endpoint gone;
  {
    const listener l = rt.listen();
    gone = l.local_endpoint();
  }
  rt.run(current_environment());
  CHECK(rt.run(as_result(rt.connect(gone))).has_failure());
  const auto failed = log.of(event_log::kind::connect_failed);
  REQUIRE(failed.size() == 1);
  CHECK(failed.front().level == event_log::level::warning);
  CHECK(failed.front().peer == gone.to_string());
  REQUIRE(failed.front().why);
  CHECK(failed.front().why->code == std::errc::connection_refused);

  auto [silent, mine] = stream_pair();
  CHECK(rt.run(as_result(with_timeout(rt.connect(std::move(mine)), 1ms))).has_failure());
  CHECK(log.of(event_log::kind::connect_failed).size() == 1);
}

TEST_CASE("a client that is refused is logged on both sides, its text without controls",
          "[runtime][device]") {
  all_records log;
  runtime rt{log.of_runtime()};
  listener acceptor = rt.listen({}, {.admit = refuse_all});
  CHECK(rt.run(as_result(rt.connect(acceptor.local_endpoint()))).has_failure());
  rt.run(test::until(rt.executor(), [&] { return acceptor.counters().rejected == 1; }));
  const auto refused = log.of(event_log::kind::client_refused);
  REQUIRE(refused.size() == 1);
  CHECK_THAT(refused.front().peer, Catch::StartsWith("127.0.0.1:"));
  CHECK(refused.front().local == acceptor.local_endpoint().to_string());
  REQUIRE(refused.front().why);
  CHECK(refused.front().why->code == errc::refused);
  CHECK(refused.front().why->detail.view() == "not ?[2Jtoday?");
  const auto failed = log.of(event_log::kind::connect_failed);
  REQUIRE(failed.size() == 1);
  CHECK_THAT(std::string{failed.front().why->detail.view()}, Catch::Contains("not ?[2Jtoday?"));
}

TEST_CASE("over sockets of the program's own, both outcomes are logged", "[runtime][device]") {
  all_records log;
  runtime rt{log.of_runtime()};
  {
    auto [a, b] = stream_pair();
    auto both = rt.run(when_all(rt.connect(std::move(a)), rt.accept(std::move(b))));
    const auto connected = log.of(event_log::kind::connected);
    REQUIRE(connected.size() == 2);
    CHECK(connected.front().bootstrap == "unix");
    CHECK(connected.front().peer == "unix:");
  }
  auto [a, b] = stream_pair();
  rt.run(when_all(as_result(rt.connect(std::move(a))),
                  as_result(rt.accept(std::move(b), refuse_all))));
  REQUIRE(log.of(event_log::kind::connect_failed).size() == 1);
  CHECK(log.of(event_log::kind::connect_failed).front().why->code == errc::refused);
  REQUIRE(log.of(event_log::kind::client_refused).size() == 1);
  CHECK(log.of(event_log::kind::client_refused).front().peer == "unix:");
}

TEST_CASE("over a Unix socket the log names the user", "[runtime][device]") {
  const test::temporary_folder folder;
  all_records log;
  runtime rt{log.of_runtime()};
  listener acceptor = rt.listen("unix:" + (folder.path / "s").string());
  auto both = rt.run(when_all(rt.connect(acceptor.local_endpoint()), acceptor.accept()));
  const auto connected = log.of(event_log::kind::connected);
  REQUIRE(connected.size() == 2);
  for (const logged_event& one : connected) {
    CHECK(one.bootstrap == "unix");
    CHECK(one.identity == "uid " + std::to_string(::geteuid()));
  }
}

TEST_CASE("connections by exchanged information are logged, and so is a failed exchange",
          "[runtime][device]") {
  all_records log;
  runtime rt{log.of_runtime()};
  prepared_connection a = rt.prepare_connection();
  prepared_connection b = rt.prepare_connection();
  const std::string of_a = a.info();
  const std::string of_b = b.info();
  CHECK(rt.run(as_result(rt.prepare_connection().connect("nonsense"))).has_failure());
  REQUIRE(log.of(event_log::kind::connect_failed).size() == 1);
  CHECK(log.of(event_log::kind::connect_failed).front().bootstrap == "exchanged");
  CHECK(log.of(event_log::kind::connect_failed).front().why);
  auto both = rt.run(when_all(a.connect(of_b), b.connect(of_a)));
  const auto connected = log.of(event_log::kind::connected);
  REQUIRE(connected.size() == 2);
  CHECK(connected.front().bootstrap == "exchanged");
  CHECK(connected.front().local.empty());
  CHECK_FALSE(connected.front().peer.empty());
}

TEST_CASE("listeners are logged when they open and close", "[runtime][device]") {
  all_records log;
  runtime rt{log.of_runtime()};
  listener l = rt.listen();
  REQUIRE(log.of(event_log::kind::listening).size() == 1);
  CHECK(log.of(event_log::kind::listening).front().local == l.local_endpoint().to_string());
  rt.run(l.close());
  l.close();
  REQUIRE(log.of(event_log::kind::listener_closed).size() == 1);
  CHECK(log.of(event_log::kind::listener_closed).front().local == l.local_endpoint().to_string());
  CHECK_FALSE(log.of(event_log::kind::listener_closed).front().why);
}

TEST_CASE("a group's listener logs its clients, each on its own thread's hook",
          "[runtime][device]") {
  all_records log;
  runtime client{test::on_test_device()};
  {
    runtime_group group{{.each = [&](unsigned) { return log.of_runtime(); }, .threads = 2}};
    const auto admit = [](connection_request& request) {
      if (request.private_data[0] != std::byte{}) request.refuse("a wrong word");
    };
    const auto hold = [](runtime&, unsigned, connection conn) -> task<> { co_await conn.ended(); };
    const endpoint where = group.serve({}, hold, {.admit = admit}).local_endpoint();
    connection conn = client.run(client.connect(where));
    connection_options wrong;
    wrong.private_data[0] = std::byte{1};
    CHECK(client.run(as_result(client.connect(where, wrong))).has_failure());
    client.run(conn.close());
    group.stop();
    group.wait();
    REQUIRE(log.of(event_log::kind::listening).size() == 1);
    CHECK(log.of(event_log::kind::listening).front().local == where.to_string());
  }
  REQUIRE(log.of(event_log::kind::listener_closed).size() == 1);
  CHECK(log.of(event_log::kind::connected).size() == 1);
  const auto refused = log.of(event_log::kind::client_refused);
  REQUIRE(refused.size() == 1);
  CHECK_THAT(refused.front().peer, Catch::StartsWith("127.0.0.1:"));
  CHECK(refused.front().local == log.of(event_log::kind::listening).front().local);
  CHECK(refused.front().why->detail.view() == "a wrong word");
}

TEST_CASE("a lease is logged from its beginning to each of its ends", "[runtime][device]") {
  logged_pair p;
  const std::string peer = p.server.peer().to_string();
  unsigned opened = 0;
  const auto check_end = [&](event_log::kind event, event_log::level level, std::uint64_t bytes) {
    INFO(to_string(event));
    REQUIRE(p.of(event).size() == 1);
    const logged_event end = p.of(event).front();
    CHECK(end.level == level);
    CHECK(end.peer == peer);
    CHECK(end.bytes == bytes);
    CHECK(end.note == to_string(logged_pair::strength()));
    REQUIRE(p.of(event_log::kind::lease_opened).size() == ++opened);
    const logged_event begin = p.of(event_log::kind::lease_opened).back();
    CHECK(begin.bytes == bytes);
    CHECK(begin.peer == peer);
    CHECK(begin.qpn == end.qpn);
  };
  remote_mr returned = p.rt.run(p.client.request_remote_mr(100));
  returned = {};
  p.settle();
  check_end(event_log::kind::lease_returned, event_log::level::debug, 100);

  remote_mr late = p.rt.run(p.client.request_remote_mr(200, {.lease = 100ms}));
  p.settle();
  check_end(event_log::kind::lease_expired, event_log::level::warning, 200);

  p.rt.run(p.client.send_remote_mr(p.rt.run(p.client.request_remote_mr(300))));
  check_end(event_log::kind::lease_handed_over, event_log::level::debug, 300);
  CHECK(p.rt.run(p.server.receive_local_mr()).size_bytes() == 300);
  CHECK(p.of(event_log::kind::lease_returned).size() == 1);

  loan lent = p.rt.run(p.server.send_local_mr(p.server.memory().allocate_zeroed(400)));
  p.rt.run(lent.revoke());
  check_end(event_log::kind::lease_revoked, event_log::level::info, 400);

  remote_mr cut_off = p.rt.run(p.client.request_remote_mr(500));
  p.server = {};
  check_end(event_log::kind::lease_disconnected, event_log::level::debug, 500);
}

TEST_CASE("a refused request for memory is logged with its size and the limit",
          "[runtime][device]") {
  logged_pair p;
  CHECK(p.rt.run(as_result(p.client.request_remote_mr(1 << 30))).has_failure());
  const auto refused = p.of(event_log::kind::lease_refused);
  REQUIRE(refused.size() == 1);
  CHECK(refused.front().level == event_log::level::warning);
  CHECK(refused.front().peer == p.server.peer().to_string());
  CHECK(refused.front().bytes == 1 << 30);
  REQUIRE(refused.front().why);
  CHECK(refused.front().why->code == errc::limit_exceeded);
  CHECK(p.of(event_log::kind::lease_opened).empty());
}

TEST_CASE("events of the device are logged with its name and port", "[runtime][device]") {
  all_records log;
  cordma::executor executor;
  verbs::context ctx{test::device_name()};
  const detail::logger logger{executor, log.options()};
  async_events events{executor, ctx, &logger};
  events.route({.kind = IBV_EVENT_PORT_ERR, .port = 1});
  events.route({.kind = IBV_EVENT_PORT_ACTIVE, .port = 1});
  events.route({.kind = IBV_EVENT_GID_CHANGE, .port = 2});
  events.route({.kind = IBV_EVENT_CQ_ERR});
  events.route({.kind = IBV_EVENT_DEVICE_FATAL});
  events.route({.kind = IBV_EVENT_COMM_EST});
  CHECK(log.size() == 5);
  const auto note_of = [&](event_log::kind event, std::size_t which = 0) {
    REQUIRE(log.of(event).size() > which);
    return log.of(event)[which].note;
  };
  const std::string device = "device " + std::string{ctx.name()};
  CHECK(note_of(event_log::kind::port_down) ==
        std::string{verbs::to_string(IBV_EVENT_PORT_ERR)} + ", " + device + ", port 1");
  CHECK_THAT(note_of(event_log::kind::port_up), Catch::EndsWith(device + ", port 1"));
  CHECK_THAT(note_of(event_log::kind::fabric_changed), Catch::EndsWith(device + ", port 2"));
  CHECK_THAT(note_of(event_log::kind::device_failed),
             Catch::StartsWith(verbs::to_string(IBV_EVENT_CQ_ERR)));
  CHECK_THAT(note_of(event_log::kind::device_failed, 1), Catch::EndsWith(device));
}

TEST_CASE("a level leaves out what is less urgent", "[runtime][device]") {
  logged_pair p{event_log::level::warning};
  CHECK(p.size() == 0);
  CHECK(p.rt.run(as_result(p.client.request_remote_mr(1 << 30))).has_failure());
  CHECK(p.size() == 1);
  p.client = {};
  p.rt.run(p.server.ended());
  CHECK(p.of(event_log::kind::connected).empty());
  CHECK(p.of(event_log::kind::closed).empty());
}

TEST_CASE("no transfer is logged", "[runtime][device]") {
  logged_pair p;
  local_mr memory = p.client.memory().allocate_zeroed(64);
  remote_mr remote = p.rt.run(p.client.request_remote_mr(64));
  const std::size_t before = p.size();
  const auto transfer = [&]() -> task<> {
    for (int n = 0; n < 50; ++n) {
      co_await p.client.write(memory.slice(), remote);
      p.server.post_recv(memory.slice());
      co_await p.client.send(memory.slice());
      static_cast<void>(co_await p.server.next_message());
    }
  };
  p.rt.run(transfer());
  CHECK(p.size() == before);
}

TEST_CASE("a hook that throws harms no connection", "[runtime][device]") {
  runtime_options o;
  o.log = {.hook = [](const event_log::record&) { throw std::runtime_error{"full"}; },
           .least_urgent = event_log::level::debug};
  connected_pair p{std::move(o)};
  p.rt.run(when_all(p.client.close(), p.server.ended()));
  CHECK(p.server.was_closed_by_peer());
}

TEST_CASE("a lease costs no more allocations when it is logged", "[runtime][device]") {
  if (!support::counts_allocations()) WARN("allocations are not counted here");
  const auto cost = [](event_log options) {
    runtime_options o;
    o.log = std::move(options);
    connected_pair p{std::move(o), {}, test::leases::lends(logged_pair::strength())};
    const auto borrow = [&](int times) -> task<> {
      for (int n = 0; n < times; ++n) {
        remote_mr memory = co_await p.client.request_remote_mr(64);
        memory = {};
        co_await test::until(p.rt.executor(), [&] { return p.server.lending().open == 0; });
      }
    };
    p.rt.run(borrow(10));
    const std::uint64_t before = support::thread_allocation_count();
    p.rt.run(borrow(10));
    return support::thread_allocation_count() - before;
  };
  std::size_t written = 0;
  const auto hook = [&](const event_log::record& r) {
    std::array<char, 512> line;
    written += r.write_to(line);
  };
  CHECK(cost({.hook = hook, .least_urgent = event_log::level::debug}) == cost({}));
  CHECK(written > 1000);
}

TEST_CASE("CORDMA_LOG writes lines to standard error where the program has no hook",
          "[runtime][device]") {
  const variable info{"CORDMA_LOG", "info"};
  captured_errors errors;
  std::string where;
  {
    runtime rt{test::on_test_device()};
    const listener l = rt.listen();
    where = l.local_endpoint().to_string();
  }
  const std::string text = errors.text();
  INFO(text);
  CHECK(std::ranges::count(text, '\n') == 2);
  CHECK_THAT(text, Catch::Contains(" info listening local=" + where + '\n') &&
                       Catch::EndsWith(" info listener_closed local=" + where + '\n'));
  CHECK_THAT(text, Catch::StartsWith("cordma: "));
}

TEST_CASE("a hook comes before CORDMA_LOG, and without both nothing is written",
          "[runtime][device]") {
  captured_errors errors;
  all_records log;
  {
    const variable wrong{"CORDMA_LOG", "wrong"};  // Is not read.
    runtime rt{log.of_runtime()};
    const listener l = rt.listen();
  }
  {
    const variable none{"CORDMA_LOG", nullptr};
    runtime rt{test::on_test_device()};
    const listener l = rt.listen();
  }
  CHECK(errors.text().empty());
  CHECK(log.size() == 2);
}

TEST_CASE("a CORDMA_LOG that is no level is an error that lists the levels", "[runtime][N9]") {
  for (const char* const text : {"", "verbose", "INFO", "3"}) {
    const variable wrong{"CORDMA_LOG", text};
    try {
      runtime rt{test::on_test_device()};
      FAIL("the runtime takes any level");
    } catch (const error& e) {
      CHECK(e.code() == std::errc::invalid_argument);
      CHECK_THAT(e.what(), Catch::Contains("CORDMA_LOG") &&
                               Catch::Contains('\'' + std::string{text} +
                                               "' is none of error, warning, info and debug"));
    }
  }
}
