// Ranks of a group say hello around a ring: each to the next, when the one before has. Usage:
// 13_ring_hello [DEVICE], as one rank of several:
//
//     mpirun -n 4 13_ring_hello
//     for RANK in 0 1 2 3; do
//       RANK=$RANK WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 13_ring_hello &
//     done

#include <cordma/cordma.hpp>

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace {

constexpr std::uint32_t hello = 1;  // Messages between two ranks are told apart by tags.

std::string text_of(const cordma::local_mr_slice& bytes) {
  return {reinterpret_cast<const char*>(bytes.bytes().data()), bytes.size_bytes()};
}

cordma::task<> say(cordma::group& g, std::string text, unsigned to) {
  cordma::local_mr bytes = g.runtime().memory().allocate_zeroed(text.size());
  std::memcpy(bytes.bytes().data(), text.data(), text.size());
  co_await g.send(bytes.slice(), to, hello);
}

cordma::task<> hear(cordma::group& g, unsigned from) {
  cordma::local_mr bytes = g.runtime().memory().allocate_zeroed(100);
  const cordma::group::message heard = co_await g.receive(bytes.slice(), from, hello);
  const std::string text = text_of(bytes.first(heard.size_bytes));
  std::printf("rank %u heard '%s' from rank %u\n", g.rank(), text.c_str(), heard.from);
}

cordma::task<> go_round(cordma::runtime& rt, cordma::meeting how) {
  cordma::group g = co_await cordma::group::join(rt, std::move(how));
  const unsigned next = (g.rank() + 1) % g.size();
  const unsigned before = (g.rank() + g.size() - 1) % g.size();
  std::string text = "hello from rank " + std::to_string(g.rank());
  if (g.rank() != 0) co_await hear(g, before);
  co_await say(g, std::move(text), next);
  if (g.rank() == 0) co_await hear(g, before);

  co_await g.barrier();
  if (g.rank() == 0) std::printf("%u ranks have said hello\n", g.size());
  co_await g.leave();
}

}  // namespace

// A test runs the programs above on hosts of a simulation, with a `main` of its own.
#ifndef CORDMA_EXAMPLE_WITHOUT_MAIN

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Line by line, also into a pipe.
  cordma::runtime rt{{.device = argc > 1 ? argv[1] : ""}};
  rt.run(go_round(rt, cordma::meeting::by_launcher()));
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}

#endif
