// Many clients of one server, in processes of their own, some of which are killed.
#include <cordma/rpc/client.hpp>

#include <support/filled.hpp>
#include <support/manual_executor.hpp>
#include <support/peer_process.hpp>
#include <support/soak.hpp>
#include <support/until.hpp>

#include <cordma/coro/scope.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/rpc/server.hpp>
#include <cordma/runtime/runtime_group.hpp>

#include <catch2/catch.hpp>

#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using support::started;
using test::fill;
using test::is_filled;
using test::peer_process;

namespace {

using std::size_t;
using view = std::span<const std::byte>;
using bytes = std::vector<std::byte>;

constexpr unsigned clients_per_process = 4;
constexpr unsigned survivors = 64;
constexpr unsigned victims = 64;  ///< clients of processes that are killed
constexpr unsigned clients = survivors + victims;
constexpr unsigned workers = 12;  ///< calls that a client has at once
constexpr unsigned threads = 2;   ///< threads of the server
constexpr std::uint64_t calls_each = 10'000;
constexpr size_t bulk_max = 32 * 1024;
constexpr size_t large_max = 100 * 1024;

// ---- what all processes share -------------------------------------------------------------------

/// The account of one client, in memory that all processes map.
struct account {
  // The client's server writes the calls that begin and run.
  std::atomic<std::uint64_t> begun{0};  ///< calls
  std::array<std::atomic<std::uint8_t>, calls_each / 8 + 1> has_run{};
  // The client writes the rest, once it is done.
  std::atomic<bool> is_done{false};
  rpc::client_counters counters{};
  std::array<char, 400> odd{};  ///< a text of what should not be
};

struct ledger {
  std::array<account, clients> of{};
  std::atomic<std::uint64_t> ran_twice{0}, garbled{0}, handlers{0};
};

/// A ledger in memory that children of this process share with it.
class shared_ledger {
 public:
  shared_ledger() {
    void* const at =
        ::mmap(nullptr, sizeof(ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc{};
    ledger_ = new (at) ledger;
  }
  shared_ledger(const shared_ledger&) = delete;
  shared_ledger& operator=(const shared_ledger&) = delete;
  ~shared_ledger() { ::munmap(ledger_, sizeof(ledger)); }
  ledger& operator*() const noexcept { return *ledger_; }
  ledger* operator->() const noexcept { return ledger_; }

 private:
  ledger* ledger_;
};

// ---- what is called -----------------------------------------------------------------------------

enum class duty : std::uint32_t {
  answer,
  nap,
  fail,
  stay,
  // Duties with memory of the caller's.
  read_source,
  write_sink,
  use_both
};

/// The first bytes of a request; bytes that tell which request it is follow.
struct order {
  std::uint32_t client;
  std::uint32_t number;  ///< the client's number of the call
  duty what;
  std::uint32_t reply_bytes;
  std::uint32_t nap_us;

  [[nodiscard]] std::uint64_t key() const noexcept { return std::uint64_t{client} << 32 | number; }
};

struct job : rpc::method<"soak.job", view, bytes> {};
struct probe : rpc::method<"soak.probe", view, view> {};
/// Asks how much of the caller's memory its connection has.
struct audit : rpc::method<"soak.audit", rpc::nothing, std::uint64_t> {};

connection_options deaf_and_ready() {
  connection_options o = test::deaf();
  o.rnr_retry = 0;
  return o;
}

// ---- the server ---------------------------------------------------------------------------------

constexpr const char* excuse = "as it was told";

/// The part of a server on one thread.
class desk {
 public:
  explicit desk(ledger& all) : all_{all} {
    serving.handle<probe>([](view request) -> task<view> { co_return request; });
    serving.handle<audit>([](rpc::nothing, rpc::server_call& call) -> task<std::uint64_t> {
      co_return call.connection().lending().borrowed;
    });
    serving.handle<job>(
        [this](view request, rpc::server_call& call) { return work(request, call); });
  }

  void forget() { kept_ = {}; }

  rpc::server serving{{.calls_per_connection_max = 10, .calls_max = 200}};

 private:
  task<bytes> work(view request, rpc::server_call& call) {
    order o{};
    if (request.size() < sizeof o) throw std::runtime_error{"no order"};
    std::memcpy(&o, request.data(), sizeof o);
    note(o);
    if (!is_filled(request.subspan(sizeof o), o.key())) ++all_.garbled;
    switch (o.what) {
      case duty::answer: break;
      case duty::nap: co_await sleep_for(std::chrono::microseconds{o.nap_us}); break;
      case duty::fail: throw std::runtime_error{excuse};
      case duty::stay: co_await sleep_for(1h); break;
      case duty::read_source: co_await read_source(call, o); break;
      case duty::write_sink: co_await write_sink(call, o); break;
      case duty::use_both: co_await read_source(call, o); co_await write_sink(call, o);
    }
    bytes reply(o.reply_bytes);
    fill(reply, ~o.key());
    co_return reply;
  }
  /// No request comes twice.
  void note(const order& o) {
    account& a = all_.of.at(o.client);
    ++a.begun;
    ++all_.handlers;
    if (o.client >= survivors) return;
    const auto bit = std::uint8_t(1u << o.number % 8);
    if ((a.has_run.at(o.number / 8).fetch_or(bit) & bit) != 0) ++all_.ran_twice;
  }
  task<> read_source(rpc::server_call& call, const order& o) {
    remote_mr theirs = call.source();
    local_mr ours = call.connection().memory().allocate_uninitialized(theirs.size_bytes());
    co_await call.connection().read(ours.slice(), theirs);
    if (!is_filled(ours.bytes(), o.key() + 1)) ++all_.garbled;
    keep(std::move(theirs), o);
  }
  task<> write_sink(rpc::server_call& call, const order& o) {
    remote_mr theirs = call.sink();
    local_mr ours = call.connection().memory().allocate_uninitialized(theirs.size_bytes());
    fill(ours.bytes(), o.key() + 2);
    co_await call.connection().write(ours.slice(), theirs);
    keep(std::move(theirs), o);
  }
  /// Keeps some memory for longer than the call: the client has to take it back.
  void keep(remote_mr theirs, const order& o) {
    if (o.number % 2 == 0) kept_.at(o.number / 2 % kept_.size()) = std::move(theirs);
  }

  ledger& all_;
  std::array<remote_mr, 16> kept_;
};

// ---- a client -----------------------------------------------------------------------------------

class caller {
 public:
  caller(runtime& rt, account& a, std::uint32_t name, std::uint64_t calls, std::uint64_t seed)
      : rt_{rt}, account_{a}, name_{name}, calls_{calls}, random_{seed} {}

  task<> live(std::uint16_t port) {
    try {
      const endpoint server{"127.0.0.1", port};
      client_ = rpc::client{co_await rt_.connect(server, deaf_and_ready()), {.call_timeout = 300s}};
      scope all{rt_.executor()};
      for (unsigned n = 0; n < workers; ++n) all.spawn(work());
      co_await all.join();
      co_await compare();
      co_await client_.close();
    } catch (const std::exception& e) {
      note_odd(e.what());
    }
    account_.counters = client_ ? client_.counters() : rpc::client_counters{};
  }
  void note_odd(std::string_view what) {
    const size_t used = std::strlen(account_.odd.data());
    std::snprintf(account_.odd.data() + used, account_.odd.size() - used, "%.*s; ",
                  int(what.size()), what.data());
  }

 private:
  /// How a call is made to end.
  enum class fate { as_it_likes, deadline, stop, drop };

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  /// Inline, in a buffer, or by rendezvous.
  size_t some_bytes() {
    const std::uint64_t how = below(100);
    return how < 45 ? below(24) : how < 92 ? below(4096) : below(large_max);
  }
  duty some_duty() {
    const std::uint64_t how = below(100);
    if (how >= 12) return duty::answer;
    return how < 3 ? duty::nap : how < 5 ? duty::fail : how < 6 ? duty::stay : duty(4 + below(3));
  }
  fate some_fate() {
    const std::uint64_t how = below(100);
    return how < 85 ? fate::as_it_likes : fate(1 + how % 3);
  }
  /// About as long as a call takes, and a busy server's.
  std::chrono::microseconds some_time() {
    return std::chrono::microseconds{1 + below(std::uint64_t{64} << below(12))};
  }

  task<> work() {
    while (made_ < calls_) {
      const std::uint64_t number = made_++;
      if (below(20) == 0) {
        co_await call_ping();
      } else {
        co_await call_job(std::uint32_t(number));
      }
    }
  }
  task<> call_ping() {
    auto outcome = co_await as_result(client_.call<probe>(view{}));
    if (!outcome.has_value()) {
      note_end(outcome, duty::answer, fate::as_it_likes);
    } else if (!(**outcome).empty()) {
      note_odd("an answer to nothing");
    }
  }
  task<> call_job(std::uint32_t number) {
    order o{.client = name_,
            .number = number,
            .what = some_duty(),
            .reply_bytes = std::uint32_t(some_bytes()),
            .nap_us = std::uint32_t(below(3000))};
    bytes request(sizeof o + some_bytes());
    std::memcpy(request.data(), &o, sizeof o);
    fill(std::span{request}.subspan(sizeof o), o.key());
    // A call that stays ends only by a deadline or a stop.
    fate how = o.what == duty::stay ? fate(1 + below(3)) : some_fate();
    if (o.what > duty::stay && below(2) == 0) how = fate(1 + below(3));
    rpc::call_options options{};
    if (how == fate::deadline) options.timeout = some_time();
    local_mr source, sink;
    if (o.what == duty::read_source || o.what == duty::use_both) {
      source = rt_.memory().allocate_uninitialized(1 + below(bulk_max));
      fill(source.bytes(), o.key() + 1);
      options.source = source.slice();
    }
    if (o.what == duty::write_sink || o.what == duty::use_both) {
      sink = rt_.memory().allocate_zeroed(1 + below(bulk_max));
      options.sink = sink.slice();
    }
    auto op = client_.call<job>(request, options);
    if (how == fate::drop) co_return co_await drop(std::move(op));
    if (how == fate::stop) {
      take(co_await as_result(with_timeout(std::move(op), some_time())), o, sink, how);
    } else {
      take(co_await as_result(std::move(op)), o, sink, how);
    }
  }
  /// Drops a call, perhaps before its end.
  task<> drop(rpc::detail::call_op<job> op) {
    const started<rpc::detail::call_op<job>> call{rt_.executor(), std::move(op)};
    co_await sleep_for(some_time());
  }
  void take(result<bytes> outcome, const order& o, local_mr& sink, fate how) {
    if (!outcome.has_value()) return note_end(outcome, o.what, how);
    if (outcome->size() != o.reply_bytes || !is_filled(*outcome, ~o.key()))
      note_odd("an answer to something else");
    if (sink.size_bytes() != 0 && !is_filled(sink.bytes(), o.key() + 2))
      note_odd("a sink that nobody wrote");
    if (o.what == duty::fail || o.what == duty::stay) note_odd("an answer by whoever gives none");
  }
  /// A call that has no answer has a reason, and it is one that was to be expected.
  void note_end(const auto& outcome, duty what, fate how) {
    if (outcome.is_cancelled()) return note_odd("a stop that nobody asked for");
    const failure& why = outcome.failure();
    if (why.code == errc::timed_out && how != fate::as_it_likes) return;
    if (why.code == errc::handler_failed && what == duty::fail && why.detail.view() == excuse)
      return;
    note_odd(error{why}.what());
  }
  /// Checks the counters once all calls have ended.
  task<> compare() {
    const std::uint64_t borrowed = co_await client_.call<audit>();
    // The server keeps memory of calls that were given up until it hears of that.
    if (borrowed > workers * 2) note_odd("the server keeps what it borrowed");
    const auto is_at_rest = [this] { return client_.connection()->lending().open == 0; };
    co_await with_timeout(test::until(rt_.executor(), is_at_rest), 30s);
    const lending_counters& lent = client_.connection()->lending();
    if (lent.bytes_lent != 0 || lent.stranded != 0) note_odd("something is lent");
    const rpc::client_counters& n = client_.counters();
    if (n.calls != n.answered + n.refused + n.timed_out + n.stopped + n.lost)
      note_odd("calls did not end once");
    if (n.lost != 0) note_odd("calls were lost");
    if (n.calls != calls_ + 1) note_odd("calls were not counted");
  }

  runtime& rt_;
  account& account_;
  const std::uint32_t name_;
  const std::uint64_t calls_;
  std::mt19937_64 random_;
  rpc::client client_;
  std::uint64_t made_ = 0;
};

/// The clients of one process.
struct staff {
  ledger& all;
  unsigned first;
  std::uint64_t calls;
  std::uint64_t seed;
};

task<> be_clients(runtime& rt, staff s, std::uint16_t port) {
  const size_t in_use_at_first = rt.memory().statistics().in_use_bytes;
  {
    std::vector<std::unique_ptr<caller>> callers;
    scope together{rt.executor()};
    for (unsigned n = s.first; n < s.first + clients_per_process; ++n) {
      callers.push_back(std::make_unique<caller>(rt, s.all.of.at(n), n, s.calls, s.seed + n));
      together.spawn(callers.back()->live(port));
    }
    co_await together.join();
    callers.clear();
  }
  const auto is_back = [&] { return rt.memory().statistics().in_use_bytes == in_use_at_first; };
  const auto outcome = co_await as_result(with_timeout(test::until(rt.executor(), is_back), 30s));
  account& last = s.all.of.at(s.first);
  if (!outcome.has_value()) std::strcat(last.odd.data(), "memory did not come back; ");
  for (unsigned n = s.first; n < s.first + clients_per_process; ++n) s.all.of.at(n).is_done = true;
}

std::vector<std::unique_ptr<peer_process>> make_processes(ledger& all, unsigned first, unsigned end,
                                                          std::uint64_t calls, std::uint64_t seed) {
  std::vector<std::unique_ptr<peer_process>> made;
  for (unsigned n = first; n < end; n += clients_per_process) {
    const staff s{all, n, calls, seed};
    made.push_back(std::make_unique<peer_process>(
        [s](runtime& rt, std::uint16_t port, const peer_process::port_teller&) {
          return be_clients(rt, s, port);
        }));
  }
  return made;
}

// ---- the campaign -------------------------------------------------------------------------------

/// Ends when it holds, or when for long no handler was begun.
template <class Condition>
task<bool> holds_some_day(cordma::executor& executor, ledger& all, Condition condition) {
  std::uint64_t seen = 0;
  time_point quiet_since = executor.now();
  while (!condition()) {
    co_await executor.sleep_for(1ms);
    if (const std::uint64_t now = all.handlers; now != seen) {
      seen = now;
      quiet_since = executor.now();
    }
    if (executor.now() - quiet_since > 60s) co_return false;
  }
  co_return true;
}

/// Kills the processes of victims, one after another, each when it is busy; and waits for the
/// others.
task<> outlive(cordma::executor& executor, ledger& all,
               std::vector<std::unique_ptr<peer_process>>& killed, std::uint16_t port,
               std::uint64_t calls, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  for (unsigned n = 0; n < killed.size(); ++n) {
    killed[n]->start(port);
    const std::uint64_t goal = 1 + random() % (calls / 4 + 1);
    const account& one = all.of.at(survivors + n * clients_per_process);
    const bool is_busy = co_await holds_some_day(executor, all, [&] { return one.begun >= goal; });
    if (!is_busy) co_return;
    killed[n]->kill();
  }
  const auto are_done = [&] {
    for (unsigned n = 0; n < survivors; ++n)
      if (!all.of.at(n).is_done) return false;
    return true;
  };
  static_cast<void>(co_await holds_some_day(executor, all, are_done));
}

void add(rpc::client_counters& sum, const rpc::client_counters& c) {
  sum.calls += c.calls;
  sum.answered += c.answered;
  sum.refused += c.refused;
  sum.timed_out += c.timed_out;
  sum.stopped += c.stopped;
}

}  // namespace

TEST_CASE("calls of many clients are answered once or fail with a reason, whoever is killed",
          "[.soak-rpc][rpc][device][P1][P3]") {
  const std::uint64_t seed = test::soak::seed();
  const std::uint64_t calls = std::min(test::soak::count(calls_each), calls_each);
  shared_ledger all;
  auto lasting = make_processes(*all, 0, survivors, calls, seed);
  auto killed = make_processes(*all, survivors, clients, UINT32_MAX, seed);
  std::vector<std::unique_ptr<desk>> desks;
  for (unsigned n = 0; n < threads; ++n) desks.push_back(std::make_unique<desk>(*all));
  runtime_group group{
      {.each = [](unsigned) { return test::on_test_device(); }, .threads = threads}};
  std::array<size_t, threads> in_use_at_first{};
  for (unsigned n = 0; n < threads; ++n)
    in_use_at_first.at(n) = group[n].memory().statistics().in_use_bytes;

  const std::uint16_t port = group
                                 .serve({},
                                        [&desks](runtime&, unsigned index, connection conn) {
                                          return desks[index]->serving.serve(std::move(conn));
                                        },
                                        {.connections = deaf_and_ready()})
                                 .local_endpoint()
                                 .port;
  for (const auto& one : lasting) one->start(port);
  group.run([&](runtime& rt, unsigned index) -> task<> {
    if (index == 0) co_await outlive(rt.executor(), *all, killed, port, calls, seed);
  });
  // The server lives on, and has nothing of those that are gone.
  std::array<bool, threads> is_at_rest{};
  group.run([&](runtime& rt, unsigned index) -> task<> {
    desks[index]->forget();
    is_at_rest.at(index) = co_await holds_some_day(rt.executor(), *all, [&] {
      const rpc::server_counters& n = desks[index]->serving.counters();
      return n.running == 0 && n.connections == 0 &&
             rt.memory().statistics().in_use_bytes == in_use_at_first.at(index);
    });
  });

  rpc::client_counters sum;
  for (unsigned n = 0; n < survivors; ++n) {
    const account& a = all->of.at(n);
    INFO("client " << n);
    CHECK(a.is_done);
    CHECK(std::string{a.odd.data()} == "");
    add(sum, a.counters);
  }
  std::cout << sum.calls << " calls: " << sum.answered << " answered, " << sum.refused
            << " refused, " << sum.timed_out << " timed out, " << sum.stopped << " stopped\n";
  CHECK(sum.calls == survivors * (calls + 1));
  CHECK(sum.answered > sum.calls / 2);
  CHECK((sum.timed_out > 0 && sum.stopped > 0));
  CHECK(all->ran_twice == 0);
  CHECK(all->garbled == 0);
  for (unsigned n = 0; n < threads; ++n) {
    const rpc::server_counters& c = desks[n]->serving.counters();
    INFO("thread " << n);
    CHECK(is_at_rest.at(n));
    CHECK(c.running == 0);
    CHECK(c.connections == 0);
    CHECK(c.refused == 0);
    CHECK(c.too_large == 0);
    CHECK(c.calls == c.replied + c.failed + c.stopped);
    CHECK(group[n].memory().statistics().in_use_bytes == in_use_at_first.at(n));
  }
}
