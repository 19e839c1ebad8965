#include "server_side.hpp"

#include "datagrams.hpp"
#include "xrc.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/rpc/server.hpp>

#include <algorithm>

namespace perf {
namespace {

using cordma::verbs::access;

remote_end remote_end_of(const cordma::connection& conn) { return {.qpn = conn.peer_qpn()}; }

/// A connection that the client closed has ended as it should.
void check_end(const cordma::connection& conn, const cordma::failure& why) {
  if (!conn.was_closed_by_peer()) throw cordma::error{conn.why_lost().value_or(why)};
}

/// The client works on our memory, and this program takes no part in it.
cordma::task<> lend_memory(cordma::runtime& rt, const job& what, const teller& tell,
                           cordma::connection& conn) {
  const cordma::local_mr memory = shared_memory(rt, what);
  remote_end here = remote_end_of(conn);
  here.memory = memory.remote_slice().encode();
  tell(here);
  co_await wait_for_end(conn);
}

/// Takes messages, and gives the receives back to the client's credits, half of them at a time.
cordma::task<> receive_all(cordma::runtime& rt, const job& what, const teller& tell,
                           cordma::connection& conn) {
  cordma::local_mr memory = shared_memory(rt, what);
  const std::uint32_t posted = receives(what);
  for (std::uint32_t i = 0; i < posted; ++i) {
    conn.post_recv(memory.slice(i % slots(what) * what.size_bytes, what.size_bytes));
  }
  remote_end here = remote_end_of(conn);
  here.memory = memory.remote_slice().encode();
  tell(here);
  for (std::uint32_t taken = 0;;) {
    auto message = co_await cordma::as_result(conn.next_message());
    if (message.has_failure()) co_return check_end(conn, message.failure());
    if (message.is_cancelled()) throw cordma::cancelled{};
    conn.post_recv(message->slices);
    if (++taken < posted / 2) continue;
    // A failure of this message fails the connection, and with it the next receive.
    static_cast<void>(conn.post(cordma::send_with_imm(cordma::const_local_mr_slice{}, taken)));
    taken = 0;
  }
}

cordma::task<> serve_calls(const job& what, const teller& tell, cordma::connection conn) {
  cordma::rpc::server_options options;
  options.stream = stream_options(what);
  cordma::rpc::server server{options};
  server.handle<echo>([](bytes said) -> cordma::task<bytes> { co_return said; });
  tell(remote_end_of(conn));
  co_await server.serve(std::move(conn));
}

cordma::task<> echo_messages(cordma::message_stream& stream) {
  for (;;) {
    auto message = co_await cordma::as_result(stream.receive());
    if (message.is_cancelled()) throw cordma::cancelled{};
    if (message.has_failure()) co_return check_end(stream.connection(), message.failure());
    co_await stream.send(message->slice());
  }
}

cordma::task<> serve_stream(const job& what, const teller& tell, cordma::connection conn) {
  const remote_end here = remote_end_of(conn);
  cordma::message_stream stream{std::move(conn), stream_options(what)};
  tell(here);
  // The send of a long one ends when the client has it: so that others go on meanwhile.
  co_await cordma::with_scope([&](cordma::scope& echoes) -> cordma::task<> {
    for (std::size_t i = 0; i < slots(what); ++i) echoes.spawn(echo_messages(stream));
    co_return;
  });
}

}  // namespace

cordma::local_mr shared_memory(cordma::runtime& rt, const job& what) {
  return rt
      .memory(access::local_write | access::remote_read | access::remote_write |
              access::remote_atomic)
      .allocate_zeroed(slots(what) * what.size_bytes);
}

cordma::task<> wait_for_end(cordma::connection& conn) {
  const auto nothing = co_await cordma::as_result(conn.next_message());
  if (nothing.has_failure()) check_end(conn, nothing.failure());
}

cordma::task<> serve_connection(cordma::runtime& rt, job what, teller tell,
                                cordma::connection conn) {
  if (what.op == operation::xrc)
    co_return co_await serve_xrc(rt, what, std::move(tell), std::move(conn));
  switch (over_rc(what.op)) {
    case operation::rpc: co_return co_await serve_calls(what, tell, std::move(conn));
    case operation::ud:
    case operation::multicast: co_return co_await serve_datagrams(rt, what, tell, std::move(conn));
    case operation::stream: co_return co_await serve_stream(what, tell, std::move(conn));
    case operation::send:
    case operation::write_imm: co_return co_await receive_all(rt, what, tell, conn);
    default: co_return co_await lend_memory(rt, what, tell, conn);
  }
}

}  // namespace perf
