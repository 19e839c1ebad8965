// Measures a stream of messages, beside messages and bulk writes by raw verbs.

#include "support/bench.hpp"
#include "support/raw_messages.hpp"

#include <support/connected_pair.hpp>

#include <cordma/messages/message_stream.hpp>

#include <string>
#include <vector>

namespace {

using bench::raw_messages;
using cordma::message_stream;
using cordma::stream_message;
using cordma::task;

constexpr std::size_t bulk_bytes = std::size_t{1} << 20;

/// Two ends of a stream, both in this thread, which polls as the raw loop does.
struct stream_pair : cordma::test::connected_pair {
  stream_pair()
      : connected_pair{{.cq = {.mode = cordma::completion_mode::busy}}},
        a{std::move(client)},
        b{std::move(server)} {}
  message_stream a, b;
};

task<> echo(stream_pair& p, std::span<const std::byte> bytes, std::uint64_t n) {
  for (; n > 0; --n) {
    co_await p.a.send(bytes);
    const stream_message there = co_await p.b.receive();
    co_await p.b.send(there.bytes());
    static_cast<void>(co_await p.a.receive());
  }
}

task<> send_each(message_stream& s, cordma::const_local_mr_slice memory, std::uint64_t n) {
  for (; n > 0; --n) co_await s.send(memory);
}
task<> receive_each(message_stream& s, std::uint64_t n) {
  for (; n > 0; --n) static_cast<void>(co_await s.receive());
}
/// Sends two messages at once, as many as the stream fetches ahead.
task<> send_bulk(stream_pair& p, cordma::const_local_mr_slice memory, std::uint64_t n) {
  co_await cordma::when_all(send_each(p.a, memory, n / 2), send_each(p.a, memory, n - n / 2),
                            receive_each(p.b, n));
}

}  // namespace

BENCH_ON_DEVICE("stream/echo", "What does a message there and one back cost?") {
  for (const std::size_t size : {std::size_t{32}, std::size_t{1024}}) {
    raw_messages raw{size};
    stream_pair p;
    const std::vector<std::byte> bytes(size);
    recorder.compare(
        std::to_string(size) + " B", [&](std::uint64_t n) { raw.round_trips(n); },
        [&](std::uint64_t n) { p.rt.run(echo(p, bytes, n)); });
  }
}

BENCH_ON_DEVICE("stream/bulk/1MiB", "How near to a WRITE does a large message come?") {
  bench::raw_loopback loop;
  cordma::local_mr to = loop.memory(bulk_bytes);
  const cordma::local_mr from = loop.memory(bulk_bytes);
  const auto make = [&] {
    const cordma::remote_mr_slice there = to.remote_slice();
    return support::raw::request{
        IBV_WR_RDMA_WRITE, loop.piece_of(from, bulk_bytes), {there.address(), there.rkey()}};
  };
  stream_pair p;
  const cordma::local_mr memory = p.rt.memory().allocate_zeroed(bulk_bytes);
  recorder.allow_allocations(10);  // A loan, and its memory.
  recorder.compare(
      "1 MiB", [&](std::uint64_t n) { loop.raw.run(make, n, 2); },
      [&](std::uint64_t n) { p.rt.run(send_bulk(p, memory.slice(), n)); });
}
