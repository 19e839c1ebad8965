#include "scenarios.hpp"
#include "support.hpp"

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

runtime_options options_of(completion_mode mode) {
  runtime_options o = open_network();
  o.cq.mode = mode;
  return o;
}

/// Hosts that wait for completions in one of all modes each. One in manual mode polls by itself,
/// now and then late.
struct polled : cast {
  using cast::cast;
  static constexpr unsigned rounds = 6;
  std::vector<completion_mode> modes;
  unsigned ended = 0;

  task<> poll(runtime& rt, const bool& is_over) {
    while (!is_over) {
      rt.poll();
      co_await sleep_for(w.random(30) == 0 ? moment(2ms) : moment(20us));
    }
  }

  task<> echo(connection conn, unsigned count) {
    message_stream stream{std::move(conn)};
    for (unsigned n = 0; n < count; ++n) {
      const stream_message m = co_await stream.receive();
      const auto sent = co_await as_result(stream.send(m.bytes(), m.immediate()));
      // In manual mode the peer's end may come before the completion of what it has received.
      const bool is_last_of_manual = modes[0] == completion_mode::manual && n + 1 == count &&
                                     code_of(sent) == errc::disconnected;
      require(sent.has_value() || is_last_of_manual, "an answer was not sent");
    }
    const auto after_all = co_await as_result(stream.receive());
    require(code_of(after_all) == errc::disconnected, "a stream did not end with its close");
  }

  task<> ask(connection conn) {
    const const_local_mr registered = registered_pattern(conn.memory());
    message_stream stream{std::move(conn)};
    for (unsigned n = 0; n < rounds; ++n) {
      const part sent = any_part(w, w.random(9) == 0 ? 100 * kib : kib);
      if (w.random(1) == 0) {
        co_await stream.send(sent.bytes(), n);
      } else {
        co_await stream.send(sent.of(registered), n);
      }
      const stream_message m = co_await stream.receive();
      require(m.immediate() == n && sent.is_in(m.bytes()), "an answer: other bytes");
    }
    co_await close(stream);
  }

  task<> work(runtime& rt, unsigned self) {
    if (self > 0) {
      co_await ask(co_await connect_patiently(rt, at(0)));
    } else {
      listener listening = rt.listen(at(0));
      co_await with_scope([&](scope& all) -> task<> {
        for (unsigned n = 1; n < size(); ++n) all.spawn(echo(co_await listening.accept(), rounds));
      });
    }
    ++ended;
  }

  task<> live(runtime& rt, unsigned self) {
    bool is_over = false;
    const auto work_on = [&]() -> task<> {
      co_await work(rt, self);
      is_over = true;
    };
    if (modes[self] == completion_mode::manual) {
      co_await when_all(work_on(), poll(rt, is_over));
    } else {
      co_await work_on();
    }
  }
};

}  // namespace

void play_polling(sim::world& w) {
  w.forbid_receiver_not_ready();
  const auto all = std::make_shared<polled>(w, 2 + unsigned(w.random(1)));
  constexpr std::array all_modes{completion_mode::event, completion_mode::busy,
                                 completion_mode::adaptive, completion_mode::manual};
  for (unsigned n = 0; n < all->size(); ++n) {
    const completion_mode mode = all_modes[w.random(all_modes.size() - 1)];
    all->modes.push_back(mode);
    all->hosts[n]->start([=](runtime& rt) { return all->live(rt, n); },
                         [mode] { return options_of(mode); });
  }
  w.run(10min);
  all->require(all->ended == all->size(), "a program did not come to its end");
}

}  // namespace cordma::test
