#include "scenarios.hpp"
#include "support.hpp"

#include <cordma/rpc/client.hpp>
#include <cordma/rpc/server.hpp>

#include <map>

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

/// A call's number, and what the handler is to do.
struct numbered {
  std::uint64_t number = 0;
  std::uint64_t takes_us = 0;
  part answer;
};
struct answered : rpc::method<"calls.answered", numbered, std::vector<std::byte>> {};
/// Runs again when an answer was lost.
struct repeatable : rpc::method<"calls.repeatable", numbered, std::vector<std::byte>> {
  static constexpr bool is_idempotent = true;
};
/// Copies its source to its sink.
struct copied : rpc::method<"calls.copied", numbered> {};
/// Answers while it still reads its source.
struct hasty : rpc::method<"calls.hasty", numbered> {};
struct failing : rpc::method<"calls.failing", numbered> {};
struct missing : rpc::method<"calls.missing", numbered> {};

constexpr std::size_t answer_max = 64 * kib;
constexpr duration call_lateness_max = 200ms;
/// How long a handler may go on after its caller has given up.
constexpr duration handler_lateness_max = 500ms;
constexpr std::uint64_t very_long_us = 60'000'000;

/// How often the handler of each call has begun, and the answers that came.
struct tally {
  std::map<std::uint64_t, unsigned> begun;
  std::uint64_t last = 0;
  unsigned answers = 0;
  unsigned running = 0;
};

/// A handler that runs.
class running_handler {
 public:
  running_handler(tally& counted, const numbered& said) : counted_{counted} {
    ++counted.begun[said.number];
    ++counted.running;
  }
  running_handler(const running_handler&) = delete;
  ~running_handler() { --counted_.running; }

 private:
  tally& counted_;
};

/// Registers the methods above.
void handle_all(rpc::server& server, tally& counted) {
  const auto answer = [&counted](numbered said) -> task<std::vector<std::byte>> {
    const running_handler here{counted, said};
    if (said.takes_us > 0) co_await sleep_for(std::chrono::microseconds{said.takes_us});
    const auto bytes = said.answer.bytes();
    co_return std::vector<std::byte>{bytes.begin(), bytes.end()};
  };
  server.handle<answered>(answer);
  server.handle<repeatable>(answer);
  server.handle<copied>([&counted](numbered said, rpc::server_call& call) -> task<rpc::nothing> {
    const running_handler here{counted, said};
    const local_mr copy = co_await call.fetch_source(answer_max);
    const remote_mr sink = call.sink();
    co_await call.connection().write(copy.slice(), sink);
    co_return rpc::nothing{};
  });
  server.handle<hasty>([&counted](numbered said, rpc::server_call& call) -> task<rpc::nothing> {
    const running_handler here{counted, said};
    connection& conn = call.connection();
    const remote_mr source = call.source();
    local_mr copy = conn.memory().allocate_uninitialized(source.size_bytes());
    auto left = conn.post(read(copy, source));
    co_return rpc::nothing{};
  });
  server.handle<failing>([&counted](numbered said) -> task<rpc::nothing> {
    ++counted.begun[said.number];
    throw std::runtime_error{"as it was asked to"};
    co_return rpc::nothing{};
  });
}

/// A server and clients, whose calls end in many ways, each once.
struct calling : cast {
  using cast::cast;
  tally counted;
  unsigned calm = 0;  ///< clients whose calls have ended

  /// Calls in flight, and those that the server runs, wait for others if there are few.
  [[nodiscard]] unsigned any_limit() { return w.random(1) == 0 ? 1 + unsigned(w.random(3)) : 1024; }

  numbered any_call() {
    return {.number = ++counted.last,
            .takes_us = w.random(3) == 0 ? w.random(20000) : 0,
            .answer = any_part(w, answer_max)};
  }

  void check_answer(const numbered& said, const std::vector<std::byte>& heard) {
    require(said.answer.is_in(heard), "an answer: other bytes");
    require(counted.begun[said.number] == 1, "a call that was answered has not run once");
    ++counted.answers;
  }

  /// Lends memory with a call, which has it back when the call has ended, however that was.
  task<> call_with_memory(rpc::client& client, mr_allocator& memory, const numbered& said,
                          duration limit) {
    const local_mr source = memory.allocate_zeroed(said.answer.length);
    std::ranges::copy(said.answer.bytes(), const_cast<std::byte*>(source.bytes().data()));
    local_mr sink = memory.allocate_zeroed(said.answer.length);
    const auto ended = co_await as_result(
        client.call<copied>(said, {.timeout = limit, .source = source, .sink = sink}));
    require(ended.has_value() || code_of(ended) == errc::timed_out, "a call failed");
    if (ended.has_value()) {
      require(said.answer.is_in(sink.bytes()), "a sink: other bytes");
    } else {
      std::ranges::fill(sink.bytes(), std::byte{});
      co_await sleep_for(moment(20ms));
      require(std::ranges::all_of(sink.bytes(), [](std::byte b) { return b == std::byte{}; }),
              "a sink was written after its call");
    }
  }

  task<> call_once(rpc::client& client, mr_allocator& memory) {
    numbered said = any_call();
    const duration limit = w.random(2) == 0 ? 1us + moment(10ms) : duration{10s};
    // Handlers of calls that are given up end soon.
    if (limit < 1s && w.random(1) == 0) said.takes_us = very_long_us;
    const time_point began = w.now();
    switch (w.random(6)) {
      case 0: co_await call_with_memory(client, memory, said, limit); co_return;
      case 1: {
        const auto ended = co_await as_result(client.call<failing>(said));
        require(code_of(ended) == errc::handler_failed, "a handler's failure got lost");
        co_return;
      }
      case 2: {
        const auto ended = co_await as_result(client.call<missing>(said));
        require(code_of(ended) == errc::unknown_method, "a method that nobody has was called");
        co_return;
      }
      case 3: {
        if (w.random(1) == 0) said.takes_us = very_long_us;
        co_await when_any(client.call<answered>(said, {.timeout = limit}), sleep_for(moment(5ms)));
        co_return;
      }
      case 4: {
        const local_mr source = memory.allocate_zeroed(said.answer.length);
        co_await client.call<hasty>(said, {.source = source});
        co_return;
      }
      default: {
        auto ended = co_await as_result(client.call<answered>(said, {.timeout = limit}));
        require(w.now() - began <= limit + call_lateness_max, "a call's deadline was not met");
        if (ended.has_value()) {
          check_answer(said, *ended);
        } else {
          require(code_of(ended) == errc::timed_out && w.now() - began >= limit, "a call failed");
        }
      }
    }
  }

  task<> call_some(rpc::client& client, mr_allocator& memory) {
    // A deadline may end the wait with an exception: that of `when_any` is the call's.
    for (unsigned n = 0; n < 10; ++n) {
      try {
        co_await call_once(client, memory);
      } catch (const error& e) {
        if (e.failure().code != errc::timed_out) throw;
      }
    }
  }

  task<> live(runtime& rt, unsigned self) {
    if (self > 0) {
      rpc::client client{co_await connect_patiently(rt, at(0)), {.calls_max = any_limit()}};
      mr_allocator& memory = client.connection()->memory();
      co_await with_scope([&](scope& all) -> task<> {
        for (unsigned n = 0; n < 5; ++n) all.spawn(call_some(client, memory));
        co_return;
      });
      co_await sleep_for(handler_lateness_max);
      if (++calm == size() - 1) require(counted.running == 0, "a handler outlives its call");
      co_await close(client);
      co_return;
    }
    rpc::server server{{.calls_per_connection_max = any_limit(), .calls_max = any_limit()}};
    handle_all(server, counted);
    listener listening = rt.listen(at(0));
    co_await with_scope([&](scope& all) -> task<> {
      for (unsigned n = 1; n < size(); ++n) all.spawn(server.serve(co_await listening.accept()));
    });
    require(server.counters().running == 0, "a call runs that nobody waits for");
  }
};

/// Clients that connect by themselves, and go on when a connection, or the server, is lost.
struct repeating : cast {
  using cast::cast;
  tally counted;
  bool is_calm = false;  ///< Faults have ended.

  task<> call_some(rpc::client& client) {
    for (unsigned n = 0; n < 10; ++n) {
      const numbered said{
          .number = ++counted.last, .takes_us = w.random(2000), .answer = any_part(w, answer_max)};
      const bool may_repeat = w.random(1) == 0;
      result<std::vector<std::byte>> ended{cancelled_result};
      if (may_repeat) {
        ended = co_await as_result(client.call<repeatable>(said));
      } else {
        ended = co_await as_result(client.call<answered>(said));
      }
      if (ended.has_value()) {
        require(said.answer.is_in(*ended), "an answer: other bytes");
        require(counted.begun[said.number] > 0, "a call was answered that has not run");
        ++counted.answers;
      }
      require(may_repeat || counted.begun[said.number] <= 1, "a call ran twice");
      co_await sleep_for(moment(50ms));
    }
  }

  task<> call_all(runtime& rt) {
    rpc::client_options options;
    options.call_timeout = 5s;
    options.calls_max = 1 + unsigned(w.random(3));
    options.reconnect.delay_max = 200ms;
    rpc::client client{rt.executor(), [&] { return rt.connect(at(0)); }, options};
    co_await with_scope([&](scope& all) -> task<> {
      for (unsigned n = 0; n < 2; ++n) all.spawn(call_some(client));
      co_return;
    });
    co_await until([this] { return is_calm; });
    const numbered last{.number = ++counted.last, .takes_us = 0, .answer = any_part(w, answer_max)};
    const auto heard = co_await as_result(client.call<repeatable>(last, {.timeout = 2min}));
    require(heard.has_value(), "a call is not answered although nothing goes wrong any more");
    require(last.answer.is_in(*heard), "an answer: other bytes");
    ++counted.answers;
    co_await client.close();
  }

  task<> serve(runtime& rt) {
    rpc::server server;
    handle_all(server, counted);
    listener listening = rt.listen(at(0));
    co_await when_any(server.serve(listening), until([&] { return !are_running_from(1); }));
  }

  task<> live(runtime& rt, unsigned self) {
    co_await persist([&] { return self == 0 ? serve(rt) : call_all(rt); });
  }
};

}  // namespace

void play_calls(sim::world& w) {
  w.forbid_receiver_not_ready();
  const auto all = start_all<calling>(w, 2 + unsigned(w.random(2)));
  w.run(10min);
  for (const auto& [number, times] : all->counted.begun)
    all->require(times <= 1, "a call ran twice");
}

void play_repeated_calls(sim::world& w) {
  const auto all = start_all<repeating>(w, 2 + unsigned(w.random(2)));
  // The server is back before it is killed again.
  for (unsigned n = 0; n < 2; ++n)
    restart(all, 0, all->moment(1s) + n * 1200ms, all->moment(100ms));
  w.after(3s, [&w, all] {
    w.heal();
    all->is_calm = true;
  });
  w.run(10min);
  // The device may have opened for no client.
  all->require(all->counted.answers > 0 || all->counted.last == 0, "no call was answered");
}

}  // namespace cordma::test
