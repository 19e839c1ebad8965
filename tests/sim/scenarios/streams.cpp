#include "scenarios.hpp"
#include "support.hpp"

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t stream_message_max = 300 * kib;

/// One end of a stream: its messages, and how it receives.
struct stream_side {
  std::vector<part> messages;
  std::vector<bool> may_lack;  ///< Sends that may have been stopped.
  stream_options options;
  std::size_t received = 0;
};

/// Two ends of a stream, each of which sends and receives. One of them closes.
struct streaming : cast {
  streaming(sim::world& of, unsigned count) : cast{of, count}, sides(count) {
    for (stream_side& side : sides) {
      side.messages.resize(1 + w.random(39));
      for (part& p : side.messages) p = any_part(w, w.random(4) == 0 ? stream_message_max : kib);
      side.may_lack.resize(side.messages.size());
      side.options.depth = 8u << w.random(3);
      side.options.buffer_bytes = std::size_t{64} << w.random(7);
      side.options.large_ahead = unsigned(w.random(3));
    }
  }

  std::vector<stream_side> sides;
  const bool has_stops = w.random(1) == 0;  ///< Some sends are stopped.

  /// Sends a message, or gives it up. The last one is always sent.
  task<> send_one(message_stream& to, stream_side& own, std::size_t n,
                  const const_local_mr& registered) {
    const part& sent = own.messages[n];
    const auto number = std::uint32_t(n);
    auto sending =
        w.random(1) == 0 ? to.send(sent.bytes(), number) : to.send(sent.of(registered), number);
    if (!has_stops || n + 1 == own.messages.size() || w.random(3) != 0)
      co_return co_await std::move(sending);
    own.may_lack[n] = true;
    const auto ended = co_await as_result(with_timeout(std::move(sending), moment(2ms)));
    require(ended.has_value() || code_of(ended) == errc::timed_out, "a send failed");
  }

  /// Sends with some messages under way at once, which arrive in the order of their beginnings.
  task<> send_all(message_stream& to, unsigned self) {
    const const_local_mr registered = registered_pattern(to.connection().memory());
    stream_side& own = sides[self];
    for (std::size_t n = 0; n < own.messages.size();) {
      const std::size_t count = std::min<std::size_t>(1 + w.random(3), own.messages.size() - n);
      co_await with_scope([&](scope& sends) -> task<> {
        for (std::size_t i = n; i < n + count; ++i) sends.spawn(send_one(to, own, i, registered));
        co_return;
      });
      n += count;
      if (w.random(7) == 0) co_await sleep_for(moment(5ms));
    }
  }

  /// Returns what the message of a number is: the next one, or one behind sends that were stopped.
  const part& take(unsigned self, std::optional<std::uint32_t> number) {
    const stream_side& peer = sides[1 - self];
    std::size_t& next = sides[self].received;
    require(number >= next && number < peer.messages.size(), "a message came out of its turn");
    for (; next < *number; ++next) require(peer.may_lack[next], "a message is lacking");
    return peer.messages[next++];
  }

  task<> receive_one(message_stream& from, unsigned self) {
    if (w.random(2) == 0) {
      local_mr memory;
      const auto arrived = co_await from.receive_into([&](const message_stream::arrival& next) {
        memory = from.connection().memory().allocate_zeroed(next.size_bytes + 1);
        return memory.slice();
      });
      const part& sent = take(self, arrived.immediate);
      require(arrived.size_bytes == sent.length &&
                  sent.is_in(std::as_const(memory).bytes().first(sent.length)),
              "a message that was received into memory: other bytes");
      require(memory.bytes().back() == std::byte{}, "a byte behind a message was written");
    } else {
      const stream_message m = co_await from.receive();
      require(take(self, m.immediate()).is_in(m.bytes()), "a message: other bytes");
    }
  }

  task<> receive_all(message_stream& from, unsigned self) {
    const std::size_t& received = sides[self].received;
    while (received < sides[1 - self].messages.size()) {
      // A wait that ends early loses no message.
      if (w.random(5) == 0) {
        const std::size_t before = received;
        while (received == before) {
          result<stream_message> one =
              co_await as_result(with_timeout(from.receive(), 1us + moment(2ms)));
          if (code_of(one) == errc::timed_out) continue;
          const stream_message m = std::move(one).value();
          require(take(self, m.immediate()).is_in(m.bytes()),
                  "a message that was waited for several times: other bytes");
        }
      } else {
        co_await receive_one(from, self);
      }
      if (w.random(9) == 0) co_await sleep_for(moment(20ms));
    }
  }

  task<> live(runtime& rt, unsigned self) {
    std::optional<listener> listening;
    if (self == 0) listening = rt.listen(at(0), {}, without_heartbeats());
    connection conn;
    if (self == 0) {
      conn = co_await listening->accept();
    } else {
      conn = co_await connect_patiently(rt, at(0), without_heartbeats());
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
