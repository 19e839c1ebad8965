#include "attempt.hpp"

#include "attempt_memory.hpp"

#include <cordma/coro/sleep.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <algorithm>

namespace doctor {
namespace {

using cordma::connection;
using cordma::local_mr_slice;
using cordma::message;
using cordma::runtime;
using cordma::task;

task<> answer_stream(connection conn) {
  cordma::message_stream stream{std::move(conn)};
  for (;;) {
    const cordma::stream_message said = co_await stream.receive();
    co_await stream.send(said.slice());
  }
}

task<> tell_area(connection& conn, buffers& b) {
  const auto encoded = b.area.remote_slice().encode();
  const local_mr_slice said = b.out.first(encoded.size());
  std::ranges::copy(encoded, said.bytes().begin());
  co_await conn.send(said);
}

/// Gives each message back, and of a WRITE with immediate what it wrote.
task<> echo_messages(connection& conn, buffers& b) {
  for (;;) {
    const message m = co_await conn.next_message();
    const auto came =
        m.is_write ? b.area.first(std::min(m.size_bytes, message_bytes)) : m.payload();
    const local_mr_slice said = b.out.first(came.size_bytes());
    std::ranges::copy(came.bytes(), said.bytes().begin());
    conn.post_recv(m.slices);
    if (m.immediate) {
      co_await conn.send_with_imm(said, *m.immediate + 1);
    } else {
      co_await conn.send(said);
    }
  }
}

task<> answer_in_time(runtime& rt, connection conn, operation op) {
  if (op == operation::stream) co_return co_await answer_stream(std::move(conn));
  buffers b{rt};
  if (op == operation::late_receive) {
    co_await cordma::sleep_for(lateness);
    b.post_receives(conn);
    co_return co_await conn.ended();
  }
  if (op == operation::silence) {
    co_await tell_area(conn, b);
    conn.verbs().to_error();  // The device drops what comes, and says nothing.
    co_return co_await conn.ended();
  }
  b.post_receives(conn);
  co_await tell_area(conn, b);
  co_await echo_messages(conn, b);
}

}  // namespace

task<> answer(runtime& rt, connection conn, operation op) {
  // The active side tells what failed; here the end of the connection is the normal end.
  const auto end = co_await cordma::as_result(
      cordma::with_timeout(answer_in_time(rt, std::move(conn), op), attempt_time_max));
  if (end.is_cancelled()) throw cordma::cancelled{};
}

}  // namespace doctor
