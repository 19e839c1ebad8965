#include "scenarios.hpp"
#include "support.hpp"

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t stream_message_max = 300 * kib;

/// One end of a stream: its messages, and how it receives.
struct stream_side {
  std::vector<part> messages;
  stream_options options;
  std::size_t received = 0;
};

/// Two ends of a stream, each of which sends and receives. One of them closes.
struct streaming : cast {
  streaming(sim::world& of, unsigned count) : cast{of, count}, sides(count) {
    for (stream_side& side : sides) {
      side.messages.resize(1 + w.random(39));
      for (part& p : side.messages) p = any_part(w, w.random(4) == 0 ? stream_message_max : kib);
      side.options.depth = 8u << w.random(3);
      side.options.buffer_bytes = std::size_t{64} << w.random(7);
      side.options.large_ahead = unsigned(w.random(3));
    }
  }

  std::vector<stream_side> sides;

  /// Sends with some messages under way at once, which arrive in the order of their beginnings.
  task<> send_all(message_stream& to, unsigned self) {
    const const_local_mr registered = registered_pattern(to.connection().memory());
    const std::vector<part>& all = sides[self].messages;
    for (std::size_t n = 0; n < all.size();) {
      const std::size_t count = std::min<std::size_t>(1 + w.random(3), all.size() - n);
      co_await with_scope([&](scope& sends) -> task<> {
        for (std::size_t i = n; i < n + count; ++i) {
          if (w.random(1) == 0) {
            sends.spawn(to.send(all[i].bytes(), std::uint32_t(i)));
          } else {
            sends.spawn(to.send(all[i].of(registered), std::uint32_t(i)));
          }
        }
        co_return;
      });
      n += count;
      if (w.random(7) == 0) co_await sleep_for(moment(5ms));
    }
  }

  task<> receive_one(message_stream& from, stream_side& own, const part& sent) {
    const auto number = std::uint32_t(own.received);
    if (w.random(2) == 0) {
      local_mr memory;
      const auto arrived = co_await from.receive_into([&](const message_stream::arrival& next) {
        memory = from.connection().memory().allocate_zeroed(next.size_bytes + 1);
        return memory.slice();
      });
      require(arrived.immediate == number, "a message came out of its turn");
      require(arrived.size_bytes == sent.length &&
                  sent.is_in(std::as_const(memory).bytes().first(sent.length)),
              "a message that was received into memory: other bytes");
      require(memory.bytes().back() == std::byte{}, "a byte behind a message was written");
    } else {
      const stream_message m = co_await from.receive();
      require(m.immediate() == number, "a message came out of its turn");
      require(sent.is_in(m.bytes()), "a message: other bytes");
    }
    ++own.received;
  }

  task<> receive_all(message_stream& from, unsigned self) {
    stream_side& own = sides[self];
    for (const part& sent : sides[1 - self].messages) {
      // A wait that ends early loses no message.
      if (w.random(5) == 0) {
        const std::size_t before = own.received;
        while (own.received == before) {
          result<stream_message> one =
              co_await as_result(with_timeout(from.receive(), 1us + moment(2ms)));
          if (code_of(one) == errc::timed_out) continue;
          const stream_message m = std::move(one).value();
          require(m.immediate() == std::uint32_t(before) && sent.is_in(m.bytes()),
                  "a message that was waited for several times: other bytes");
          ++own.received;
        }
      } else {
        co_await receive_one(from, own, sent);
      }
      if (w.random(9) == 0) co_await sleep_for(moment(20ms));
    }
  }

  task<> live(runtime& rt, unsigned self) {
    std::optional<listener> listening;
    if (self == 0) listening = rt.listen(at(0));
    connection conn;
    if (self == 0) {
      conn = co_await listening->accept();
    } else {
      conn = co_await connect_patiently(rt, at(0));
    }
    message_stream stream{std::move(conn), sides[self].options};
    co_await when_all(send_all(stream, self), receive_all(stream, self));
    if (self == closing) {
      co_await close(stream);
    } else {
      const auto after_all = co_await as_result(stream.receive());
      require(code_of(after_all) == errc::disconnected, "a stream did not end with its close");
    }
  }

  const unsigned closing = unsigned(w.random(1));  ///< the side that closes
};

}  // namespace

void play_streams(sim::world& w) {
  w.forbid_receiver_not_ready();
  const auto all = start_all<streaming>(w, 2);
  w.run(10min);
  for (unsigned n = 0; n < 2; ++n)
    all->require(all->sides[n].received == all->sides[1 - n].messages.size(),
                 "not all messages were received");
}

}  // namespace cordma::test
