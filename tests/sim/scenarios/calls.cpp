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
struct failing : rpc::method<"calls.failing", numbered> {};
struct missing : rpc::method<"calls.missing", numbered> {};

constexpr std::size_t answer_max = 64 * kib;
constexpr duration call_lateness_max = 200ms;

/// How often the handler of each call has begun, and the answers that came.
struct tally {
  std::map<std::uint64_t, unsigned> begun;
  std::uint64_t last = 0;
  unsigned answers = 0;
};

/// Registers the methods above.
void handle_all(rpc::server& server, tally& counted) {
  const auto answer = [&counted](numbered said) -> task<std::vector<std::byte>> {
    ++counted.begun[said.number];
    if (said.takes_us > 0) co_await sleep_for(std::chrono::microseconds{said.takes_us});
    const auto bytes = said.answer.bytes();
    co_return std::vector<std::byte>{bytes.begin(), bytes.end()};
  };
  server.handle<answered>(answer);
  server.handle<repeatable>(answer);
  server.handle<copied>([&counted](numbered said, rpc::server_call& call) -> task<rpc::nothing> {
    ++counted.begun[said.number];
    const local_mr copy = co_await call.fetch_source(answer_max);
    const remote_mr sink = call.sink();
    co_await call.connection().write(copy.slice(), sink);
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

  task<> call_once(rpc::client& client, mr_allocator& memory) {
    numbered said = any_call();
    const duration limit = w.random(2) == 0 ? 1us + moment(10ms) : duration{10s};
    const time_point began = w.now();
    switch (w.random(5)) {
      case 0: {
        said.takes_us = 0;
        const local_mr source = memory.allocate_zeroed(said.answer.length);
        std::ranges::copy(said.answer.bytes(), const_cast<std::byte*>(source.bytes().data()));
        local_mr sink = memory.allocate_zeroed(said.answer.length);
        const auto ended = co_await as_result(
            client.call<copied>(said, {.timeout = limit, .source = source, .sink = sink}));
        if (ended.has_value()) require(said.answer.is_in(sink.bytes()), "a sink: other bytes");
        require(ended.has_value() || code_of(ended) == errc::timed_out, "a call failed");
        co_return;
      }
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
        co_await when_any(client.call<answered>(said, {.timeout = limit}), sleep_for(moment(5ms)));
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
    for (unsigned n = 0; n < 15; ++n) {
      try {
        co_await call_once(client, memory);
      } catch (const error& e) {
        if (e.failure().code != errc::timed_out) throw;
      }
    }
  }

  task<> live(runtime& rt, unsigned self) {
    if (self > 0) {
      rpc::client client{co_await connect_patiently(rt, at(0))};
      mr_allocator& memory = client.connection()->memory();
      co_await with_scope([&](scope& all) -> task<> {
        for (unsigned n = 0; n < 3; ++n) all.spawn(call_some(client, memory));
        co_return;
      });
      co_await close(client);
      co_return;
    }
    rpc::server server;
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
    options.reconnect.delay_max = 200ms;
    rpc::client client{rt.executor(), [&] { return rt.connect(at(0)); }, options};
    co_await with_scope([&](scope& all) -> task<> {
      for (unsigned n = 0; n < 2; ++n) all.spawn(call_some(client));
      co_return;
    });
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
  w.run(10min);
  all->require(all->counted.answers > 0, "no call was answered");
}

}  // namespace cordma::test
