// A peer that does not keep to RPC's protocol gets errors, and nothing else.
#include "../../lib/messages/message_channel.hpp"
#include "../../lib/messages/message_frame.hpp"
#include "../../lib/messages/stream_terms.hpp"
#include "../../lib/rpc/call_frame.hpp"
#include "support/encoded_call.hpp"

#include <support/manual_executor.hpp>
#include <support/outcome.hpp>
#include <support/rpc_pair.hpp>

#include <catch2/catch.hpp>

#include <optional>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using call_protocol::header;
using call_protocol::kind;
using call_protocol::status;
using support::started;
using test::code_of;
using test::echo;
using test::wait_for;

namespace {

using bytes = std::vector<std::byte>;

bytes with_header(header h, std::string_view text = {}) {
  if (h.kind == kind::request) h.value = call_protocol::no_deadline;
  const auto head = call_protocol::encode(h);
  bytes all{head.begin(), head.end()};
  const auto rest = std::as_bytes(std::span{text});
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

/// A call that lends what there is not, of the isolation that lets its answer invalidate it.
bytes lending_call(std::uint64_t call, std::uint64_t method = echo::id) {
  bytes all = with_header({.bulk = call_protocol::source, .call = call, .method = method});
  all.resize(call_protocol::head_bytes(call_protocol::source));
  message_protocol::encode_loan(
      loan_terms{.address = 4096, .length = 8, .rkey = 7, .isolation = isolation::exact},
      &all[call_protocol::header_bytes]);
  return all;
}

/// A call whose trace context is these bytes.
bytes traced_call(std::uint64_t call, std::array<std::byte, call_protocol::trace_bytes> context) {
  bytes all = with_header({.bulk = call_protocol::trace, .call = call, .method = echo::id});
  all.insert(all.end(), context.begin(), context.end());
  return all;
}

/// An end of a connection that says what a test wants, and keeps what it hears.
class hostile final : public detail::message_channel {
 public:
  explicit hostile(connection& conn)
      : message_channel{resources_of(conn), stream_options{}, order::any} {}
  task<> say(bytes message) { co_await send_bytes(detail::channel_ref{*this}, message, {}); }
  void say_control(const bytes& message) {
    control_ = message;
    note_.frame.kind = message_protocol::kind::control;
    note_.bytes = control_;
    note_.on_posted = [](detail::outgoing_frame&, const std::optional<failure>&) noexcept {};
    send(note_);
  }
  /// A message with which a window of the peer's ends.
  void say_invalidating(const bytes& message, std::uint32_t rkey) {
    control_ = message;
    note_.frame.kind = message_protocol::kind::data;
    note_.bytes = control_;
    note_.immediate = rkey;
    note_.is_invalidation = true;
    note_.on_posted = [](detail::outgoing_frame&, const std::optional<failure>&) noexcept {};
    send(note_);
  }
  std::vector<bytes> heard, controls;
  std::vector<std::optional<std::uint32_t>> invalidated;  ///< keys that messages invalidated
  bool takes = true;                                      ///< false: it keeps the buffers
  std::vector<stream_message> kept;

 private:
  void on_message() noexcept override {
    invalidated.push_back(inbox().front().invalidated());
    stream_message m = deliver();
    heard.emplace_back(m.bytes().begin(), m.bytes().end());
    if (!takes) kept.push_back(std::move(m));
  }
  void on_control(std::span<const std::byte> b) override {
    controls.emplace_back(b.begin(), b.end());
  }
  void on_closed() noexcept override {}
  detail::outgoing_frame note_;
  bytes control_;
};

/// A server, an honest client, and one that is not.
struct hostile_client : test::rpc_server {
  explicit hostile_client(const rpc::server_options& options = {})
      : rpc_server{options},
        conn{rt.run(join())},
        peer{detail::message_channel::make<hostile>(conn)},
        stay{peer},
        honest{make_client()} {}
  header answer(std::size_t n) { return call_protocol::decode(peer.heard[n], false); }
  /// The server has cut it off, and serves the other.
  task<> is_cut_off() {
    co_await test::until(rt.executor(), [this] { return server.counters().connections == 1; });
    const std::string_view text = "still here";
    const auto back = co_await honest.call<echo>(std::as_bytes(std::span{text}));
    CHECK(back->size() == text.size());
    CHECK(server.counters().running == 0);
  }
  connection conn;
  hostile& peer;
  detail::channel_ref stay;
  rpc::client honest;
};

/// A client whose server is not honest.
struct hostile_server : test::rpc_server {
  explicit hostile_server(runtime_options of_runtime = {}) : rpc_server{{}, std::move(of_runtime)} {
    rt.run([](hostile_server& self) -> task<> {
      auto [there, here] = co_await when_all(
          self.rt.connect(self.acceptor.local_endpoint(), test::never_not_ready()),
          self.acceptor.accept());
      self.conn = std::move(here);
      self.calling = rpc::client{std::move(there)};
    }(*this));
    peer = &detail::message_channel::make<hostile>(conn);
    stay = detail::channel_ref{*peer};
  }
  /// The number of the next call that came.
  task<std::uint64_t> call_number() {
    const std::size_t before = taken++;
    co_await test::until(rt.executor(), [this, before] { return peer->heard.size() > before; });
    co_return call_protocol::decode(peer->heard[before], false).call;
  }
  connection conn;
  rpc::client calling;
  hostile* peer = nullptr;
  detail::channel_ref stay;
  std::size_t taken = 0;
};

/// Starts a call, sends the answer that is made of its number, and gives what came of it.
template <class Answer>
task<failure> failure_after(hostile_server& s, Answer answer) {
  cordma::executor& executor = s.rt.executor();
  started call{executor, s.calling.call<wait_for>(1)};
  const std::uint64_t number = co_await s.call_number();
  co_await s.peer->say(answer(number));
  co_await test::until(executor, [&] { return call.has_ended(); });
  const auto outcome = (*call).take_result();
  co_return outcome.has_failure() ? outcome.failure() : failure{};
}

}  // namespace

TEST_CASE("a client that sends no call is cut off, and harms no other", "[rpc][device][hostile]") {
  const bytes call_4 = with_header({.call = 4, .method = echo::id}, "hello");
  const std::vector<bytes> wrong{bytes(23),
                                 with_header({.kind = kind::reply, .call = 1}),
                                 with_header({.kind = kind::failure, .call = 1}),
                                 with_header({.kind = kind::cancel, .call = 1}),
                                 with_header({.bulk = 8, .call = 1}),
                                 with_header({.bulk = call_protocol::trace, .call = 1}),
                                 traced_call(1, {}),
                                 with_header({.call = call_protocol::call_limit})};
  for (const bytes& message : wrong) {
    hostile_client s;
    s.rt.run([](hostile_client& siege, const bytes& first, const bytes& m) -> task<> {
      co_await siege.peer.say(first);
      co_await siege.peer.say(m);
      co_await siege.is_cut_off();
    }(s, call_4, message));
  }
}

TEST_CASE("a request is longer by its trace context, and the same without one", "[rpc][device]") {
  static constexpr std::uint32_t number = 1;
  const rpc::trace_context given = rpc::trace_context{}.child();
  hostile_server s;
  s.rt.run([](hostile_server& siege, const rpc::trace_context& context) -> task<> {
    cordma::executor& executor = siege.rt.executor();
    started plain{executor, siege.calling.call<wait_for>(number)};
    const std::uint64_t first = co_await siege.call_number();
    started traced{executor, siege.calling.call<wait_for>(number, {.trace = context})};
    const std::uint64_t second = co_await siege.call_number();
    header h{.call = first, .method = wait_for::id};
    bytes expected = with_header(h);
    const auto request = std::as_bytes(std::span{&number, 1});
    expected.insert(expected.end(), request.begin(), request.end());
    bytes& without = siege.peer->heard[0];
    std::fill_n(&without[4], 4, std::byte{0xff});  // The deadline, which the clock makes.
    CHECK(without == expected);
    h.call = second;
    h.bulk = call_protocol::trace;
    expected = with_header(h);
    expected.resize(expected.size() + call_protocol::trace_bytes);
    call_protocol::encode(context, &expected[call_protocol::header_bytes]);
    expected.insert(expected.end(), request.begin(), request.end());
    bytes& with = siege.peer->heard[1];
    std::fill_n(&with[4], 4, std::byte{0xff});
    CHECK(with == expected);
  }(s, given));
}

TEST_CASE("a client whose control is none is cut off", "[rpc][device][hostile]") {
  for (const bytes& message : {bytes(3), with_header({.kind = kind::returned, .call = 1}),
                               with_header({.kind = kind::cancel, .call = 1}, "more")}) {
    hostile_client s;
    s.rt.run([](hostile_client& siege, const bytes& m) -> task<> {
      co_await siege.peer.say(with_header({.call = 4, .method = echo::id}));
      siege.peer.say_control(m);
      co_await siege.is_cut_off();
    }(s, message));
  }
}

TEST_CASE("a client of another version is told so, and may go on", "[rpc][device][hostile]") {
  hostile_client s;
  s.rt.run([](hostile_client& siege) -> task<> {
    co_await siege.peer.say(with_header({.version = 9, .kind = kind{200}, .call = 7}, "what"));
    co_await siege.peer.say(with_header({.call = 8, .method = echo::id}, "hello"));
    co_await test::until(siege.rt.executor(), [&] { return siege.peer.heard.size() == 2; });
    CHECK(siege.answer(0).kind == kind::failure);
    CHECK(siege.answer(0).call == 7);
    CHECK(status{siege.answer(0).value} == status::unknown_version);
    CHECK(siege.answer(1).kind == kind::reply);
    CHECK(siege.answer(1).call == 8);
    // A control message of another version is let pass: nothing of it is known.
    siege.peer.say_control(with_header({.version = 9, .kind = kind{200}, .call = 7}));
    co_await siege.peer.say(with_header({.call = 9, .method = echo::id}, "hello"));
    co_await test::until(siege.rt.executor(), [&] { return siege.peer.heard.size() == 3; });
  }(s));
}

TEST_CASE("what is cancelled before its turn, and is no call, costs the client its connection",
          "[rpc][device][hostile]") {
  hostile_client s{{.calls_per_connection_max = 1}};
  s.rt.run([](hostile_client& siege) -> task<> {
    const std::string two{"\2\0\0\0", 4};
    co_await siege.peer.say(with_header({.call = 1, .method = wait_for::id}, two));
    co_await siege.peer.say(with_header({.kind = kind::reply, .call = 2}));
    co_await test::until(siege.rt.executor(), [&] { return siege.running == 1; });
    siege.peer.say_control(with_header({.kind = kind::cancel, .call = 2}));
    co_await siege.is_cut_off();
  }(s));
}

TEST_CASE("a call that is cancelled while its request is on its way does not run",
          "[rpc][device][hostile][P7]") {
  hostile_client s;
  s.rt.run([](hostile_client& siege) -> task<> {
    cordma::executor& executor = siege.rt.executor();
    const std::string text(100'000, 'x');  // Larger than a buffer: it is announced, and read.
    const bytes cancelled = with_header({.call = 5, .method = echo::id}, text);
    const bytes other = with_header({.call = 6, .method = echo::id}, text);
    co_await siege.peer.say(with_header({.call = 4, .method = echo::id}));
    started first{executor, siege.peer.say(cancelled)};
    siege.peer.say_control(with_header({.kind = kind::cancel, .call = 5}));
    started second{executor, siege.peer.say(other)};
    co_await test::until(executor, [&] { return siege.peer.heard.size() == 3; });
    for (const std::size_t n : {1u, 2u}) {
      const header h = siege.answer(n);
      CHECK(h.kind == (h.call == 5 ? kind::failure : kind::reply));
      if (h.call == 5) CHECK(status{h.value} == status::stopped);
    }
  }(s));
  CHECK(s.server.counters().stopped == 1);
}

TEST_CASE("a cancel that overtakes its large request stops it", "[rpc][device][hostile][P7]") {
  hostile_client s;
  s.rt.run([](hostile_client& siege) -> task<> {
    const std::string text(100'000, 'x');
    co_await siege.peer.say(with_header({.call = 4, .method = echo::id}));
    siege.peer.say_control(with_header({.kind = kind::cancel, .call = 5}));
    bytes large = lending_call(5);
    large.resize(large.size() + text.size());
    co_await siege.peer.say(large);
    co_await test::until(siege.rt.executor(), [&] { return siege.peer.heard.size() == 2; });
    CHECK(siege.answer(1).kind == kind::failure);
    CHECK(status{siege.answer(1).value} == status::stopped);
    // The call's memory may have been taken back meanwhile.
    CHECK_FALSE(siege.peer.invalidated[1].has_value());
  }(s));
}

TEST_CASE("an answer of another version ends a call when its memory is back",
          "[rpc][device][hostile][R7]") {
  hostile_server siege;
  local_mr sink = siege.rt.memory().allocate_zeroed(4096);
  siege.rt.run([](hostile_server& s, local_mr& to) -> task<> {
    cordma::executor& executor = s.rt.executor();
    started call{executor, s.calling.call<wait_for>(1, {.sink = to.slice()})};
    const std::uint64_t number = co_await s.call_number();
    co_await s.peer->say(with_header({.version = 2, .kind = kind::reply, .call = number}));
    co_await test::until(executor, [&] { return call.has_ended(); });
    CHECK(code_of((*call).take_result()) == errc::incompatible_peer);
    CHECK(s.calling.connection()->lending().open == 0);
  }(siege, sink));
}

TEST_CASE("cancels of what is over, and numbers that are used twice, harm nobody",
          "[rpc][device][hostile]") {
  hostile_client s;
  s.rt.run([](hostile_client& siege) -> task<> {
    cordma::executor& executor = siege.rt.executor();
    const std::string two{"\2\0\0\0", 4};
    co_await siege.peer.say(with_header({.call = 5, .method = wait_for::id}, two));
    co_await siege.peer.say(with_header({.call = 5, .method = wait_for::id}, two));
    co_await test::until(executor, [&] { return siege.running == 2; });
    siege.peer.say_control(with_header({.kind = kind::cancel, .call = 6}));
    co_await siege.peer.say(with_header({.call = 7, .method = echo::id}));
    co_await test::until(executor, [&] { return siege.peer.heard.size() == 1; });
    siege.gate(2).set();
    co_await test::until(executor, [&] { return siege.peer.heard.size() == 3; });
    CHECK(siege.answer(1).call == 5);
    CHECK(siege.answer(2).call == 5);
    siege.peer.say_control(with_header({.kind = kind::cancel, .call = 5}));
    co_await siege.peer.say(with_header({.call = 8, .method = echo::id}));
    co_await test::until(executor, [&] { return siege.peer.heard.size() == 4; });
  }(s));
  CHECK(s.stopped == 0);
}

TEST_CASE("a server's answer that is none ends the connection, and every call with the reason",
          "[rpc][device][hostile]") {
  for (const auto& make : std::vector<bytes (*)(std::uint64_t)>{
           [](std::uint64_t) { return bytes(5); },
           [](std::uint64_t n) { return with_header({.call = n, .method = 1}); },
           [](std::uint64_t n) { return with_header({.call = n + 1, .method = 1}); },
           [](std::uint64_t n) { return with_header({.kind = kind::reply, .bulk = 1, .call = n}); },
           [](std::uint64_t n) { return with_header({.kind = kind::returned, .call = n}); }}) {
    hostile_server s;
    const failure f = s.rt.run(failure_after(s, make));
    CHECK(f.code == errc::bad_frame);
  }
}

TEST_CASE("a server that returns what it was not lent is cut off", "[rpc][device][hostile]") {
  hostile_server siege;
  siege.rt.run([](hostile_server& s) -> task<> {
    cordma::executor& executor = s.rt.executor();
    started call{executor, s.calling.call<wait_for>(1)};
    const std::uint64_t number = co_await s.call_number();
    // A return that names a call that there is not, any more or yet, says nothing.
    s.peer->say_control(with_header({.kind = kind::returned, .call = number + 1}));
    s.peer->say_control(with_header({.kind = kind::returned, .call = number}));
    co_await test::until(executor, [&] { return call.has_ended(); });
    CHECK(code_of((*call).take_result()) == errc::bad_frame);
  }(siege));
}

TEST_CASE("a server may return what it was lent before it answers, and often",
          "[rpc][device][hostile]") {
  hostile_server siege;
  local_mr sink = siege.rt.memory().allocate_zeroed(4096);
  siege.rt.run([](hostile_server& s, local_mr& to) -> task<> {
    cordma::executor& executor = s.rt.executor();
    started call{executor, s.calling.call<wait_for>(1, {.sink = to.slice()})};
    const std::uint64_t number = co_await s.call_number();
    CHECK(s.calling.connection()->lending().open == 1);
    for (int n = 0; n < 3; ++n) {
      s.peer->say_control(with_header({.kind = kind::returned, .call = number}));
      co_await test::until(executor, [&] { return s.calling.connection()->lending().open == 0; });
    }
    CHECK_FALSE(call.has_ended());
    co_await s.peer->say(with_header({.kind = kind::reply, .call = number}, "1234"));
    co_await test::until(executor, [&] { return call.has_ended(); });
    CHECK((*call).take() == 0x34333231);
  }(siege, sink));
}

TEST_CASE("an answer that invalidates another call's memory costs the server its connection",
          "[rpc][device][hostile][R7]") {
  hostile_server siege;
  local_mr sink = siege.rt.memory().allocate_zeroed(4096);
  siege.rt.run([](hostile_server& s, local_mr& to) -> task<> {
    cordma::executor& executor = s.rt.executor();
    started honest{executor, s.calling.call<wait_for>(1, {.sink = to.slice(0, 8)})};
    started other{executor, s.calling.call<wait_for>(2, {.sink = to.slice(8, 8)})};
    const std::uint64_t number = co_await s.call_number();
    const std::uint64_t other_number = co_await s.call_number();
    const loan_terms mine = call_protocol::terms_of(s.peer->heard[0], call_protocol::sink);
    const loan_terms others = call_protocol::terms_of(s.peer->heard[1], call_protocol::sink);
    // A kernel may panic with weaker isolations.
    if (mine.isolation != isolation::exact) co_return;
    s.peer->say_invalidating(with_header({.kind = kind::reply, .call = number}, "1234"), mine.rkey);
    co_await test::until(executor, [&] { return honest.has_ended(); });
    CHECK((*honest).take() == 0x34333231);
    CHECK(s.calling.connection()->lending().open == 1);
    CHECK(s.calling.connection()->lending().returned == 1);
    // The server says that it has ended a loan that it has not; the client does not believe that.
    started third{executor, s.calling.call<wait_for>(3, {.sink = to.slice(0, 8)})};
    const std::uint64_t third_number = co_await s.call_number();
    s.peer->say_invalidating(with_header({.kind = kind::reply, .call = third_number}, "1234"),
                             others.rkey);
    co_await test::until(executor, [&] { return third.has_ended(); });
    CHECK((*third).take() == 0x34333231);
    CHECK(s.calling.connection()->lending().open == 1);
    // The other call's window is invalid already, so the device refuses the next invalidation.
    co_await s.peer->say(with_header({.kind = kind::reply, .call = other_number}, "1234"));
    co_await test::until(executor, [&] { return other.has_ended(); });
    CHECK(s.calling.connection() == nullptr);
  }(siege, sink));
}

TEST_CASE("an answer that waits invalidates nothing once its call was cancelled",
          "[rpc][device][hostile][P7]") {
  hostile_client s;
  s.rt.run([](hostile_client& siege) -> task<> {
    cordma::executor& executor = siege.rt.executor();
    // The client takes no answer, until there is no credit for another.
    siege.peer.takes = false;
    co_await siege.peer.say(with_header({.call = 1, .method = echo::id}));
    for (std::uint64_t n = 2; siege.server.streams().credit_waits == 0; ++n) {
      started call{executor, siege.peer.say(with_header({.call = n, .method = echo::id}))};
      co_await test::until(executor, [&] {
        return siege.peer.heard.size() == n || siege.server.streams().credit_waits > 0;
      });
    }
    const std::size_t before = siege.peer.heard.size();
    co_await siege.peer.say(lending_call(1000));
    co_await test::until(executor, [&] { return siege.server.streams().credit_waits == 2; });
    siege.peer.say_control(with_header({.kind = kind::cancel, .call = 1000}));
    co_await siege.peer.say(with_header({.call = 1001, .method = echo::id}));
    co_await test::until(executor, [&] { return siege.server.streams().credit_waits == 3; });
    // The client need not wait for the answer.
    co_await test::until(executor, [&] { return siege.peer.controls.size() == 1; });
    const header returned = call_protocol::decode(siege.peer.controls.front(), true);
    CHECK(returned.kind == kind::returned);
    CHECK(returned.call == 1000);
    siege.peer.takes = true;
    siege.peer.kept.clear();
    co_await test::until(executor, [&] { return siege.peer.heard.size() == before + 3; });
    for (const auto& key : siege.peer.invalidated) CHECK_FALSE(key.has_value());
  }(s));
}

TEST_CASE("a failure behind a large reply that was announced invalidates nothing",
          "[rpc][device][hostile][R7]") {
  using message_protocol::frame;
  using frame_kind = message_protocol::kind;
  static constexpr std::size_t frame_bytes = 512;
  struct zeros : rpc::method<"test.zeros", rpc::nothing, std::string> {};
  test::rpc_server s;
  s.server.handle<zeros>(
      [](rpc::nothing) -> task<std::string> { co_return std::string(100'000, '0'); });
  s.rt.run([](test::rpc_server& answering) -> task<> {
    connection conn = co_await answering.join();  // The test itself makes the frames.
    co_await test::until(answering.rt.executor(),
                         [&] { return answering.server.counters().connections == 1; });
    local_mr memory = conn.memory().allocate_zeroed(8 * frame_bytes);
    for (std::size_t n = 0; n < 8; ++n) conn.post_recv(memory.slice(n * frame_bytes, frame_bytes));
    conn.agent()->send_note(encode(
        stream_terms{.messages = 8, .buffer_bytes = frame_bytes, .message_bytes_max = 1 << 20}));
    std::uint32_t taken = message_protocol::count_first;
    const auto say = [&](frame f, const bytes& behind) -> task<> {
      f.taken = taken;
      const auto head = message_protocol::encode(f);
      bytes all{head.begin(), head.begin() + std::ptrdiff_t(message_protocol::size_of(f.kind))};
      all.insert(all.end(), behind.begin(), behind.end());
      local_mr from = conn.memory().allocate_zeroed(all.size());
      std::ranges::copy(all, from.bytes().begin());
      co_await conn.send(from.slice());
    };
    const auto hear = [&](frame_kind k) -> task<message> {
      for (;;) {
        message m = co_await conn.next_message();
        ++taken;
        if (message_protocol::decode(m.payload().bytes()).kind == k) co_return m;
      }
    };
    co_await say({.kind = frame_kind::data}, lending_call(1, zeros::id));
    const message announced = co_await hear(frame_kind::announce);
    const std::uint64_t tag = message_protocol::decode(announced.payload().bytes()).tag;
    co_await say({.kind = frame_kind::taken, .tag = tag, .status = 1}, {});
    // The window that the call names is none: an invalidation would end the connection here.
    const message answer = co_await hear(frame_kind::data);
    const auto content = answer.payload().bytes().subspan(message_protocol::header_bytes);
    CHECK(call_protocol::decode(content, false).kind == kind::failure);
  }(s));
}

TEST_CASE("a server that keeps what a call lent costs the call the grace, and no more",
          "[rpc][device][hostile][R7]") {
  manual_clock clock;
  hostile_server siege{test::by_hand(clock)};
  local_mr sink = siege.rt.memory().allocate_zeroed(4096);
  siege.rt.run([](hostile_server& s, manual_clock& time, local_mr& to) -> task<> {
    cordma::executor& executor = s.rt.executor();
    const lending_policy policy;
    started call{executor, s.calling.call<wait_for>(1, {.timeout = 50ms, .sink = to.slice()})};
    const std::uint64_t number = co_await s.call_number();
    time.advance(50ms);
    co_await test::until(executor, [&] { return s.peer->controls.size() == 1; });  // The cancel.
    time.advance(duration{policy.grace} - 1ms);
    co_await test::due_timers_fired();
    CHECK_FALSE(call.has_ended());
    time.advance(2ms);
    co_await test::until(executor, [&] { return call.has_ended(); });
    CHECK(code_of((*call).take_result()) == errc::timed_out);
    const lending_counters& lent = s.calling.connection()->lending();
    CHECK(lent.forced == 1);
    CHECK(lent.open == 0);
    // Messages about the call are late now, and harm nothing.
    s.peer->say_control(with_header({.kind = kind::returned, .call = number}));
    co_await s.peer->say(with_header({.kind = kind::reply, .call = number}, "1234"));
    co_await test::until(executor, [&] { return s.calling.counters().late == 1; });
    CHECK(s.calling.connection() != nullptr);
  }(siege, clock, sink));
}

TEST_CASE("strange answers are that call's errors, and the connection lives",
          "[rpc][device][hostile]") {
  hostile_server s;
  failure f = s.rt.run(failure_after(s, [](std::uint64_t n) {
    return with_header({.version = 2, .kind = kind::reply, .call = n});
  }));
  CHECK(f.code == errc::incompatible_peer);
  f = s.rt.run(failure_after(s, [](std::uint64_t n) {
    return with_header({.kind = kind::failure, .value = 1000, .call = n}, "because");
  }));
  CHECK(f.code == errc::handler_failed);
  CHECK(f.detail.view() == "because");
  f = s.rt.run(failure_after(s, [](std::uint64_t n) {
    return with_header({.kind = kind::failure, .value = 1, .call = n}, std::string(3000, '\0'));
  }));
  CHECK(f.code == errc::unknown_method);
  f = s.rt.run(failure_after(s, [](std::uint64_t n) {
    return with_header({.kind = kind::reply, .call = n}, "long one");
  }));
  CHECK(f.code == errc::bad_message);
  // Answers that nobody asked for, or that nobody waits for any more, harm nothing.
  f = s.rt.run(failure_after(s, [](std::uint64_t n) {
    return with_header({.kind = kind::failure, .value = 6, .call = n}, "bye");
  }));
  CHECK(f.code == errc::shutting_down);
  s.rt.run([](hostile_server& siege) -> task<> {
    co_await siege.peer->say(with_header({.kind = kind::reply, .call = 12345}, "1234"));
    co_await test::until(siege.rt.executor(), [&] { return siege.calling.counters().late == 1; });
  }(s));
  CHECK(s.calling.connection() != nullptr);
}

TEST_CASE("memory is not returned to a client before its request has gone", "[rpc][device][E3]") {
  hostile_server siege;
  local_mr source = siege.rt.memory().allocate_zeroed(4096);
  siege.rt.run([](hostile_server& s, local_mr& from) -> task<> {
    cordma::executor& executor = s.rt.executor();
    // Without credit what is asked next waits at the client.
    s.peer->takes = false;
    std::vector<std::unique_ptr<started<rpc::detail::call_op<wait_for>>>> calls;
    unsigned n = 0;
    while (s.calling.stream().credit_waits == 0) {
      calls.push_back(std::make_unique<started<rpc::detail::call_op<wait_for>>>(
          executor, s.calling.call<wait_for>(n++)));
      co_await executor.sleep_for(0ms);
    }
    const bytes large(20000);
    started call{executor, s.calling.call<echo>(large, {.source = from.slice()})};
    CHECK(s.calling.connection()->lending().offered == 0);
    const std::uint64_t number = (std::uint64_t{1} << 16) | n;
    s.peer->say_control(with_header({.kind = kind::returned, .call = number}));
    co_await test::until(executor, [&] { return call.has_ended(); });
    CHECK((*call).take_result().failure().code == errc::bad_frame);
    CHECK(s.calling.connection() == nullptr);
    s.peer->kept.clear();
  }(siege, source));
}
