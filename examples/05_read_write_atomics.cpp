// One-sided operations: the client writes, reads and counts in the server's memory, and the
// server's program takes no part in it. Both run in this one process. Usage: 05_read_write_atomics
// [DEVICE]

#include <cordma/cordma.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace {

using cordma::verbs::access;

cordma::task<> serve(cordma::runtime& rt, cordma::listener& listener) {
  cordma::connection conn = co_await listener.accept();
  // Memory that the peer may use once it knows its name: a key of its own, asked for by flags.
  cordma::local_mr shared = rt.memory(access::local_write | access::remote_read |
                                      access::remote_write | access::remote_atomic)
                                .allocate_zeroed(4096);

  // Tell the peer the name.
  cordma::local_mr note = rt.memory().allocate_zeroed(64);
  const auto name = shared.remote_slice().encode();
  std::ranges::copy(name, note.bytes().begin());
  co_await conn.send(note.slice(0, name.size()));

  // The peer says when it is done, by a WRITE that also completes a receive.
  const cordma::message done = co_await conn.recv(note.slice());
  std::printf("server: immediate %u, memory starts with 0x%02x\n", done.immediate.value_or(0),
              std::to_integer<unsigned>(shared.bytes()[0]));
  co_await conn.close();
}

cordma::task<> use(cordma::runtime& rt, cordma::endpoint server) {
  cordma::connection conn = co_await rt.connect(server);
  cordma::local_mr buffer = rt.memory().allocate_zeroed(4096);
  const cordma::message told = co_await conn.recv(buffer.slice(0, 64));
  const cordma::remote_mr_slice remote = cordma::remote_mr_slice::decode(told.payload().bytes());

  // Write, and read back into another place.
  std::ranges::fill(buffer.slice(0, 1024).bytes(), std::byte{0xc0});
  co_await conn.write(buffer.slice(0, 1024), remote);
  co_await conn.read(buffer.slice(1024, 1024), remote);
  std::printf("client: read back what it wrote: %s\n",
              std::ranges::equal(buffer.slice(0, 1024).bytes(), buffer.slice(1024, 1024).bytes())
                  ? "yes"
                  : "no");

  // Atomics on 8 aligned bytes give the value before.
  const cordma::remote_mr_slice counter = remote.slice(2048, 8);
  const std::uint64_t before_add = co_await conn.fetch_add(counter, 7);
  const std::uint64_t before_swap = co_await conn.compare_swap(counter, 7, 100);
  const std::uint64_t last = co_await conn.fetch_add(counter, 0);
  std::printf("client: counter was %" PRIu64 ", then %" PRIu64 ", and is %" PRIu64 "\n", before_add,
              before_swap, last);

  // Several requests, one doorbell, one completion.
  const auto [written, read_back, value] = co_await conn.post_all(
      cordma::write(buffer.slice(0, 8), remote), cordma::read(buffer.slice(8, 8), remote),
      cordma::fetch_add(counter, 1));
  std::printf("client: a batch wrote %zu, read %zu and found %" PRIu64 "\n", written, read_back,
              value);

  co_await conn.write_with_imm(buffer.slice(0, 8), remote, 2026);
  co_await conn.close();
}

}  // namespace

int main(int argc, char** argv) try {
  cordma::runtime rt{{.device = argc > 1 ? argv[1] : ""}};
  cordma::listener listener = rt.listen();
  rt.run(cordma::when_all(serve(rt, listener), use(rt, listener.local_endpoint())));
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
