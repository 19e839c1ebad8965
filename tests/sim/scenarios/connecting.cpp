#include "scenarios.hpp"
#include "support.hpp"

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t greeting_bytes = 32;

/// A listener with little room, which refuses some clients, and is closed and made again; clients
/// that storm it, and give up in the middle.
struct storming : cast {
  using cast::cast;
  static constexpr unsigned connects_of_each = 12;
  unsigned served = 0;
  unsigned greeted = 0;

  /// Sends back what it gets.
  task<> greet(connection conn) {
    const message said = co_await conn.next_message();
    co_await conn.send(said.payload());
    ++served;
    co_await conn.ended();
  }

  task<> serve_once(runtime& rt, duration time) {
    listener_options limits;
    limits.handshakes_max = 2 + unsigned(w.random(4));
    limits.ready_max = 1 + unsigned(w.random(3));
    limits.handshake_timeout = 500ms;
    limits.admit = [](connection_request& request) {
      if (request.private_data[0] == std::byte{1})
        request.refuse("you said that you are not welcome");
    };
    listener listening = rt.listen(at(0), limits, {.preposted = 1});
    const auto close = [&]() -> task<> {
      co_await when_any(until([&] { return !are_running_from(1); }), sleep_for(time));
      co_await listening.close();
    };
    co_await when_all(
        cordma::serve(listening, [this](connection conn) { return greet(std::move(conn)); }),
        close());
  }

  task<> serve(runtime& rt) {
    while (are_running_from(1)) {
      co_await serve_once(rt, 20ms + moment(200ms));
      co_await sleep_for(moment(20ms));
    }
  }

  task<> greet_once(runtime& rt) {
    connection_changes changes;
    const bool is_unwelcome = w.random(5) == 0;
    changes.private_data.emplace()[0] = std::byte(is_unwelcome);
    changes.connect_timeout = 2s;
    connection conn = co_await rt.connect(at(0), changes);
    require(!is_unwelcome, "a client that was refused is connected");
    local_mr both = conn.memory().allocate_zeroed(2 * greeting_bytes);
    const part said{std::size_t(w.random(1000)), greeting_bytes};
    std::ranges::copy(said.bytes(), both.bytes().begin());
    if (w.random(7) == 0) co_return;  // The server loses it.
    co_await when_all(conn.send(both.first(greeting_bytes)), conn.recv(both.last(greeting_bytes)));
    require(said.is_in(both.last(greeting_bytes).bytes()), "an answer: other bytes");
    ++greeted;
    if (w.random(1) == 0) co_await conn.close();
  }

  task<> greet_often(runtime& rt) {
    for (unsigned n = 0; n < connects_of_each / 3; ++n) {
      if (w.random(3) == 0) {
        static_cast<void>(co_await as_result(with_timeout(greet_once(rt), moment(5ms))));
      } else {
        static_cast<void>(co_await as_result(greet_once(rt)));
      }
      co_await sleep_for(moment(20ms));
    }
  }

  task<> live(runtime& rt, unsigned self) {
    if (self == 0) {
      co_await persist([&] { return serve(rt); });
      co_return;
    }
    co_await with_scope([&](scope& all) -> task<> {
      for (unsigned n = 0; n < 3; ++n) all.spawn(greet_often(rt));
      co_return;
    });
  }
};

/// Two hosts that connect by texts, which may be damaged, late, or used twice.
struct preparing : cast {
  using cast::cast;
  static constexpr unsigned rounds = 5;
  std::array<std::array<std::string, 2>, rounds> texts;
  std::array<std::array<bool, 2>, rounds> are_over{};

  task<> talk(connection& conn, unsigned self) {
    local_mr both = conn.memory().allocate_zeroed(2 * greeting_bytes);
    std::ranges::copy(pattern(self, greeting_bytes), both.bytes().begin());
    const auto answer =
        co_await when_all(conn.next_message(), conn.send(both.first(greeting_bytes)));
    require(is_pattern(std::get<0>(answer).payload().bytes(), 1 - self), "a message: other bytes");
  }

  task<> connect(runtime& rt, unsigned self, unsigned round, bool is_damaged) {
    connection_changes changes;
    changes.preposted = 1;
    changes.connect_timeout = 2s;
    prepared_connection mine = rt.prepare_connection(changes);
    texts[round][self] = mine.info();
    co_await until([&] { return !texts[round][1 - self].empty(); }, 1ms);
    co_await sleep_for(moment(500ms));
    std::string theirs = texts[round][1 - self];
    if (is_damaged) {
      const auto at = w.random(theirs.size() - 1);
      theirs[at] = theirs[at] == 'x' ? 'y' : 'x';
      const auto refused = co_await as_result(mine.connect(theirs));
      require(!refused.has_value(), "a damaged text connects");
      co_return;
    }
    result<connection> made = co_await as_result(mine.connect(theirs));
    if (code_of(made) == errc::timed_out) co_return;  // The other side has damaged its text.
    connection conn = std::move(made).value();
    co_await talk(conn, self);
    if (self == 0) {
      co_await conn.close();
    } else {
      co_await conn.ended();
    }
    const auto twice = co_await as_result(mine.connect(theirs));
    require(code_of(twice) == errc::refused, "a text connects twice");
  }

  task<> live(runtime& rt, unsigned self) {
    for (unsigned round = 0; round < rounds; ++round) {
      co_await connect(rt, self, round, damaged[round] == self);
      are_over[round][self] = true;
      co_await until([&] { return are_over[round][1 - self]; }, 10ms);
    }
  }

  /// The side whose text is damaged in each round; 2 and more: none.
  const std::array<std::uint64_t, rounds> damaged{w.random(5), w.random(5), w.random(5),
                                                  w.random(5), w.random(5)};
};

}  // namespace

void play_connecting(sim::world& w) {
  start_all<storming>(w, 3 + unsigned(w.random(1)));
  w.run(10min);
}

void play_prepared(sim::world& w) {
  w.forbid_receiver_not_ready();
  start_all<preparing>(w, 2);
  w.run(10min);
}

}  // namespace cordma::test
