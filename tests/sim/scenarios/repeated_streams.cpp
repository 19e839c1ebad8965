#include "persistent.hpp"
#include "scenarios.hpp"

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

constexpr duration exchange_time_max = 5s;

connection_changes impatient() {
  connection_changes changes;
  changes.connect_timeout = 2s;
  return changes;
}

/// Clients that stream to a server, and connect again after each error.
struct repeated_streaming : persistent {
  repeated_streaming(sim::world& of, unsigned count) : persistent{of, count} {}
  bool shares_receives = false;

  task<> echo(connection conn) {
    message_stream stream{std::move(conn)};
    for (;;) {
      const stream_message m = co_await stream.receive();
      co_await stream.send(m.bytes(), m.immediate());
    }
  }

  task<> serve(runtime& rt) {
    connection_changes changes;
    if (shares_receives)
      changes.receives_from =
          &rt.share_receives({.buffers = 64, .buffer_bytes = kib, .share_min = 8});
    listener listening = rt.listen(at(0), {}, changes);
    co_await when_any(
        cordma::serve(listening, [this](connection conn) { return echo(std::move(conn)); }),
        until([this] { return are_done_from(1); }));
    done[0] = are_done_from(1);
  }

  /// Sends some messages, and receives them again.
  task<> exchange(message_stream& stream) {
    std::vector<part> messages(1 + w.random(9));
    for (part& p : messages) p = any_part(w, w.random(4) == 0 ? 64 * kib : kib);
    const auto send = [&]() -> task<> {
      for (const part& p : messages) co_await stream.send(p.bytes(), std::uint32_t(p.offset));
    };
    const auto receive = [&]() -> task<> {
      for (const part& p : messages) {
        const stream_message m = co_await stream.receive();
        require(m.immediate() == std::uint32_t(p.offset) && p.is_in(m.bytes()),
                "an answer: other bytes");
      }
    };
    const auto both = [&]() -> task<> { co_await when_all(send(), receive()); };
    co_await with_timeout(both(), exchange_time_max);
  }

  task<> converse(runtime& rt, unsigned self) {
    message_stream stream{co_await rt.connect(at(0), impatient())};
    while (done[self] == 0) {
      const bool is_last = is_calm;
      co_await exchange(stream);
      done[self] = is_last;
      co_await sleep_for(moment(50ms));
    }
    co_await stream.close();
  }

  task<> live(runtime& rt, unsigned self) {
    co_await go_on(self, [&] { return self == 0 ? serve(rt) : converse(rt, self); });
  }
};

/// Clients that send messages to one pool, and connect again after each error.
struct repeated_pooling : persistent {
  using persistent::persistent;
  static constexpr std::size_t pooled_bytes = 4 * kib;

  task<> receive_all(shared_receives& pool) {
    for (;;) {
      const shared_receives::message m = co_await pool.next_message();
      const std::uint32_t told = m.immediate().value();
      require(is_pattern(m.payload().bytes(), told >> 5), "a pool's message: other bytes");
      if ((told & 16) != 0) done[told & 15] = 1;
    }
  }

  task<> serve(runtime& rt) {
    shared_receives& pool = rt.share_receives({.buffers = 16u << w.random(2),
                                               .buffer_bytes = pooled_bytes,
                                               .share_min = 1,
                                               .for_messages = true});
    connection_changes changes;
    changes.receives_from = &pool;
    listener listening = rt.listen(at(0), {}, changes);
    co_await when_any(
        cordma::serve(listening, [](connection conn) -> task<> { co_await conn.ended(); }),
        receive_all(pool), until([this] { return are_done_from(1); }));
    done[0] = are_done_from(1);
  }

  /// The immediate data are the offset, whether all is calm, and the sender.
  task<> send_all(runtime& rt, unsigned self) {
    connection conn = co_await rt.connect(at(0), impatient());
    const const_local_mr registered = registered_pattern(rt.memory());
    while (done[self] == 0) {
      const part sent = any_part(w, pooled_bytes);
      co_await conn.send_with_imm(sent.of(registered), std::uint32_t(sent.offset << 5) |
                                                           std::uint32_t(is_calm) << 4 | self);
      co_await sleep_for(moment(20ms));
    }
    co_await conn.close();
  }

  task<> live(runtime& rt, unsigned self) {
    co_await go_on(self, [&] { return self == 0 ? serve(rt) : send_all(rt, self); });
  }
};

/// Sometimes the server is killed, too.
template <class Play>
void play_with_deaths(const std::shared_ptr<Play>& all) {
  if (all->w.random(1) == 0) restart(all, 0, all->moment(faults_time - 200ms), all->moment(100ms));
  play_until_well(all);
}

}  // namespace

void play_repeated_streams(sim::world& w) {
  play_with_deaths(std::make_shared<repeated_streaming>(w, 2 + unsigned(w.random(1))));
}

void play_repeated_shared_receives(sim::world& w) {
  const unsigned count = 2 + unsigned(w.random(2));
  if (w.random(1) == 0) {
    const auto all = std::make_shared<repeated_streaming>(w, count);
    all->shares_receives = true;
    play_with_deaths(all);
  } else {
    play_with_deaths(std::make_shared<repeated_pooling>(w, count));
  }
}

}  // namespace cordma::test
