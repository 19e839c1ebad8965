// Connections and calls that end, or begin, at a bad moment.
#include "../../lib/messages/message_frame.hpp"
#include "../../lib/messages/stream_terms.hpp"
#include "../../lib/rpc/call_frame.hpp"
#include "request/queue_pair.hpp"
#include "support/encoded_call.hpp"

#include "agent/agent.hpp"

#include <support/manual_executor.hpp>
#include <support/rpc_pair.hpp>
#include <support/stack_span.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

using namespace cordma;
using test::echo;
using test::rpc_server;

namespace {

using std::size_t;
using call_kind = call_protocol::kind;

/// A client that makes its frames itself.
struct raw_client {
  static constexpr size_t receives = 16;
  static constexpr size_t frame_bytes = 256;

  explicit raw_client(rpc_server& s)
      : rt{s.rt},
        conn{rt.run(s.join())},
        landing{rt.memory().allocate_zeroed(receives * frame_bytes)} {
    for (size_t n = 0; n < receives; ++n)
      conn.post_recv(landing.slice(n * frame_bytes, frame_bytes));
    rt.run(conn.agent()->note_arrived.wait());  // The server's receives are there.
  }
  void tell_terms() {
    conn.agent()->send_note(
        encode(stream_terms{.messages = 8, .buffer_bytes = 64, .message_bytes_max = 64}));
  }
  void request(std::uint64_t call, std::uint64_t method, std::span<const std::byte> value = {}) {
    const auto header = call_protocol::encode({.kind = call_kind::request,
                                               .value = call_protocol::no_deadline,
                                               .call = call,
                                               .method = method});
    std::vector<std::byte> bytes{header.begin(), header.end()};
    bytes.insert(bytes.end(), value.begin(), value.end());
    say(message_protocol::kind::data, bytes);
  }
  /// A frame, by which it has taken so many of the server's.
  void say(message_protocol::kind kind, std::span<const std::byte> bytes, std::uint32_t taken = 0) {
    const auto frame =
        message_protocol::encode({.kind = kind, .taken = message_protocol::count_first + taken});
    local_mr from = rt.memory().allocate_zeroed(message_protocol::header_bytes + bytes.size());
    std::copy_n(frame.begin(), message_protocol::header_bytes, from.bytes().begin());
    std::ranges::copy(bytes, from.bytes().begin() + message_protocol::header_bytes);
    rt.run(conn.send(from.slice()));
  }
  /// The next message, if it is one.
  call_protocol::header answer() {
    for (;;) {
      const message m = rt.run(conn.next_message());
      const auto bytes = m.payload().bytes();
      if (message_protocol::decode(bytes).kind == message_protocol::kind::data)
        return call_protocol::decode(bytes.subspan(message_protocol::header_bytes), false);
    }
  }

  runtime& rt;
  connection conn;
  local_mr landing;
};

}  // namespace

TEST_CASE("a request that comes before its client's terms is answered after them",
          "[rpc][device][P6]") {
  rpc_server s;
  raw_client c{s};
  c.request(1, 0);
  c.request(2, echo::id);
  // The end of the WRITE shows that the requests have come.
  s.rt.run(c.conn.write(const_local_mr_slice{}, {}));
  c.tell_terms();
  const auto first = c.answer();
  const auto second = c.answer();
  CHECK(first.kind == call_kind::failure);
  CHECK(first.call == 1);
  CHECK(second.kind == call_kind::reply);
  CHECK(second.call == 2);
}

TEST_CASE("a call that is cancelled while an answer makes room for it does not begin",
          "[rpc][device][P7]") {
  rpc_server s{{.calls_per_connection_max = 1}};
  raw_client c{s};
  c.tell_terms();
  // Four of the eight credits are for answers: the fifth waits, and behind it the next request.
  constexpr std::uint64_t answers = 5;
  for (std::uint64_t call = 1; call <= answers; ++call) c.request(call, echo::id);
  std::vector<std::byte> last(call_protocol::head_bytes(call_protocol::source));
  call_protocol::encode({.bulk = call_protocol::source, .call = answers + 1, .method = echo::id},
                        last.data());
  message_protocol::encode_loan(loan_terms{.length = 1}, &last[call_protocol::header_bytes]);
  c.say(message_protocol::kind::data, last);
  // The end of the WRITE shows that the request has come.
  s.rt.run(c.conn.write(const_local_mr_slice{}, {}));
  s.rt.run(test::until(s.rt.executor(), [&] { return s.server.counters().calls == answers; }));
  CHECK(s.server.counters().running == 1);
  // The credits come with the cancel.
  c.say(message_protocol::kind::control,
        call_protocol::encode({.kind = call_kind::cancel, .call = answers + 1}), answers - 1);
  for (std::uint64_t call = 1; call <= answers; ++call) CHECK(c.answer().call == call);
  const rpc::server_counters& n = s.server.counters();
  CHECK(n.calls == answers + 1);
  CHECK(n.replied == answers);
  CHECK(n.stopped == 1);
  CHECK(n.running == 0);
}

TEST_CASE("a server that is stopped waits for no client to take its answers", "[rpc][device]") {
  rpc_server s;
  raw_client c{s};
  c.tell_terms();
  for (std::uint64_t call = 1; call <= 12; ++call) c.request(call, echo::id);
  s.rt.run(test::until(s.rt.executor(), [&] { return s.server.counters().calls == 12; }));
  // The client gives no credit: some of the answers stay.
  CHECK(s.server.counters().running > 0);
  s.work.request_stop();
  s.rt.run(s.work.join());
  const rpc::server_counters& n = s.server.counters();
  CHECK(n.running == 0);
  CHECK(n.connections == 0);
  CHECK(n.calls == n.replied + n.stopped);
  CHECK(n.stopped > 0);
}

TEST_CASE("a client on a connection that was lost before fails its calls", "[rpc][device][P3]") {
  rpc_server s;
  connection conn = s.rt.run(s.join());
  conn.qp().abort({.code = errc::disconnected, .call = "test"});
  rpc::client c{std::move(conn)};
  const auto outcome = s.rt.run(as_result(c.call<echo>({})));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == errc::disconnected);
  CHECK(c.counters().lost == 1);
}

TEST_CASE("a call that was dropped is told nothing of the next one", "[rpc][device]") {
  rpc_server s;
  rpc::client c = s.make_client();
  cordma::detail::end_flag told;
  {
    auto dropped = c.call<test::wait_for>(1);
    REQUIRE_FALSE(dropped.start(told, {&s.rt.executor(), {}}));
  }
  const std::vector<std::byte> too_long(std::size_t{65} << 20);
  const auto outcome = s.rt.run(as_result(c.call<echo>(too_long)));  // Ends as it starts.
  CHECK(outcome.has_failure());
  CHECK_FALSE(told.is_set());
}

TEST_CASE("connections that wait for a busy server are served one after another", "[rpc][device]") {
  // The server posts each message in the middle of the work that causes the message.
  static support::stack_span span;
  static decltype(ibv_context_ops::post_send) really_post;
  span = {};
  constexpr auto marking_post = [](ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    span.mark();
    return really_post(qp, wr, bad);
  };
  rpc_server s{{.calls_max = 1}};
  raw_client first{s};
  first.tell_terms();
  const std::uint32_t gate = 1;
  first.request(1, test::wait_for::id, std::as_bytes(std::span{&gate, 1}));
  std::vector<std::unique_ptr<raw_client>> others;
  for (int n = 0; n < 30; ++n) {
    others.push_back(std::make_unique<raw_client>(s));
    others.back()->tell_terms();
    others.back()->request(1, 0);
    // The end of the WRITE shows that the request has come.
    s.rt.run(others.back()->conn.write(const_local_mr_slice{}, {}));
  }
  REQUIRE(s.running == 1);
  REQUIRE(s.server.counters().calls == 1);
  auto& post_send = s.rt.context().native_handle()->ops.post_send;
  really_post = std::exchange(post_send, marking_post);
  s.gate(1).set();
  s.rt.run(test::until(s.rt.executor(), [&] { return s.server.counters().running == 0; }));
  post_send = really_post;
  CHECK(s.server.counters().refused == others.size());
  CHECK(span.bytes() < support::stack_span_max);
}
