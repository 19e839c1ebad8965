#include "scenarios.hpp"
#include "support.hpp"

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

/// A host whose connections share their receives, and others that stream to it.
struct sharing : cast {
  using cast::cast;
  static constexpr unsigned streams_of_each = 2;
  unsigned ended = 0;

  static bool is_answered(std::size_t offset) { return offset % 4 == 0; }

  task<> serve(connection conn) {
    message_stream stream{std::move(conn)};
    for (;;) {
      const result<stream_message> one = co_await as_result(stream.receive());
      if (code_of(one) == errc::disconnected && ++ended > 0) co_return;
      require(one.has_value(), "a stream with shared receives failed");
      require(is_pattern((*one).bytes(), *(*one).immediate()), "a message: other bytes");
      if (is_answered(*(*one).immediate()))
        co_await stream.send((*one).bytes(), (*one).immediate());
    }
  }

  task<> send_all(runtime& rt) {
    message_stream stream{co_await connect_patiently(rt, at(0))};
    std::vector<part> messages(1 + w.random(39));
    for (part& p : messages) p = any_part(w, w.random(6) == 0 ? 64 * kib : kib);
    messages.front().offset &= ~std::size_t{3};  // An answer shows that the server has accepted.
    const auto send = [&]() -> task<> {
      for (const part& p : messages) co_await stream.send(p.bytes(), std::uint32_t(p.offset));
    };
    const auto receive = [&]() -> task<> {
      for (const part& p : messages) {
        if (!is_answered(p.offset)) continue;
        const stream_message m = co_await stream.receive();
        require(m.immediate() == std::uint32_t(p.offset) && p.is_in(m.bytes()),
                "an answer: other bytes");
      }
    };
    co_await when_all(send(), receive());
    co_await close(stream);
  }

  task<> live(runtime& rt, unsigned self) {
    if (self > 0) {
      co_await with_scope([&](scope& all) -> task<> {
        for (unsigned n = 0; n < streams_of_each; ++n) all.spawn(send_all(rt));
        co_return;
      });
      co_return;
    }
    shared_receives& pool = rt.share_receives(
        {.buffers = 32 * size() * streams_of_each, .buffer_bytes = kib, .share_min = 8});
    listener listening = rt.listen(at(0), {}, {.receives_from = &pool});
    const unsigned count = (size() - 1) * streams_of_each;
    co_await with_scope([&](scope& all) -> task<> {
      for (unsigned n = 0; n < count; ++n) all.spawn(serve(co_await listening.accept()));
    });
    require(ended == count, "not all streams ended");
  }
};

/// Hosts that send messages of queue pairs to one pool.
struct pooling : cast {
  using cast::cast;
  static constexpr std::uint32_t messages_of_each = 30;
  static constexpr std::size_t pooled_bytes = 4 * kib;
  static constexpr std::uint32_t taken_when_low = 5;  ///< Fewer than one host sends.
  unsigned accepted = 0;

  task<> send_all(runtime& rt) {
    connection conn = co_await connect_patiently(rt, at(0));
    const const_local_mr registered = registered_pattern(rt.memory());
    for (std::uint32_t n = 0; n < messages_of_each; ++n) {
      const part sent = any_part(w, pooled_bytes);
      co_await conn.send_with_imm(sent.of(registered), std::uint32_t(sent.offset));
    }
    // A listener drops connections that end before somebody accepts them.
    co_await until([this] { return accepted == size() - 1; }, 1ms);
    co_await close(conn);
  }

  task<> receive_all(shared_receives& pool) {
    for (std::uint32_t n = 0; n < messages_of_each * (size() - 1); ++n) {
      const shared_receives::message m = co_await pool.next_message();
      require(is_pattern(m.payload().bytes(), *m.immediate()), "a pool's message: other bytes");
      if (w.random(9) == 0) co_await sleep_for(moment(3ms));
    }
  }

  task<> live(runtime& rt, unsigned self) {
    if (self > 0) {
      co_await send_all(rt);
      co_return;
    }
    // Small pools run empty, and senders try again: seven times, which a pool of half the size may
    // not be enough for.
    const std::uint32_t buffers = 16u << w.random(2);
    shared_receives& pool = rt.share_receives(
        {.buffers = buffers, .buffer_bytes = pooled_bytes, .share_min = 1, .for_messages = true});
    listener listening = rt.listen(at(0), {}, {.receives_from = &pool});
    std::vector<connection> conns;
    const auto accept_all = [&]() -> task<> {
      for (; accepted < size() - 1; ++accepted) conns.push_back(co_await listening.accept());
    };
    // No message is taken before the device has told that the pool drains.
    const auto receive_when_low = [&]() -> task<> {
      co_await pool.runs_low(buffers - taken_when_low + 1);
      verbs::async_event told{};
      while (told.kind != IBV_EVENT_SRQ_LIMIT_REACHED) told = co_await rt.next_device_event();
      co_await receive_all(pool);
    };
    co_await when_all(receive_when_low(), accept_all());
    for (connection& conn : conns) co_await conn.ended();
  }
};

}  // namespace

void play_shared_receives(sim::world& w) {
  if (w.random(1) == 0) {
    w.forbid_receiver_not_ready();
    start_all<sharing>(w, 2 + unsigned(w.random(2)));
  } else {
    start_all<pooling>(w, 2 + unsigned(w.random(2)));
  }
  w.run(10min);
}

}  // namespace cordma::test
