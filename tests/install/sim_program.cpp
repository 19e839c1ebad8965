// A user's test: built outside the tree, against the cordma-sim that was installed or that of a
// subproject. Two hosts of a simulation exchange a message, twice with one seed.
#include <cordma/cordma.hpp>
#include <cordma/sim.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

struct run {
  std::uint64_t hash = 0;
  char answer[8] = {};
};

run exchange(std::uint64_t seed) {
  run seen;
  cordma::sim::world w{seed, cordma::sim::faults::harsh()};
  cordma::sim::host& server = w.add_host("server");
  cordma::sim::host& client = w.add_host("client");
  const cordma::endpoint at = server.endpoint(7471);
  const auto open = [] {
    cordma::runtime_options o;
    o.connections.insecure = true;
    return o;
  };
  server.start(
      [at](cordma::runtime& rt) -> cordma::task<> {
        cordma::listener listening = rt.listen(at);
        cordma::connection conn = co_await listening.accept();
        cordma::local_mr memory = rt.memory().allocate_zeroed(64);
        const cordma::message asked = co_await conn.recv(memory);
        co_await conn.send(asked.payload());
        static_cast<void>(co_await cordma::as_result(conn.next_message()));
      },
      open);
  client.start([at, &seen](cordma::runtime& rt) -> cordma::task<> {
    co_await cordma::sleep_for(std::chrono::milliseconds{100});
    cordma::connection conn = co_await rt.connect(at);
    cordma::local_mr memory = rt.memory().allocate_zeroed(64);
    std::memcpy(memory.bytes().data(), "hello", 5);
    co_await conn.send(memory.first(5));
    const cordma::message answer = co_await conn.recv(memory.slice(8, 8));
    std::memcpy(seen.answer, answer.payload().bytes().data(), 5);
    co_await conn.close();
  });
  w.run();
  seen.hash = w.trace_hash();
  return seen;
}

}  // namespace

int main() {
  const run first = exchange(1), again = exchange(1), other = exchange(2);
  std::printf("%s\nthe same seed: %s, another seed: %s\n", first.answer,
              first.hash == again.hash ? "the same run" : "ANOTHER RUN",
              first.hash == other.hash ? "THE SAME RUN" : "another run");
}
