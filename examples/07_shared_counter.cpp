// Three processes add to the same memory of a fourth, its owner. The processes add to one word by
// fetch_add. They add to another word by READ and WRITE, under a spin lock made of compare_swap.
// `server` prints its address, and each of the three `client HOST:PORT` goes there; a last argument
// names the device (`examples/processes` starts them all).
//
// One connection reaches a loan, as in example 06. Memory for several peers at once is registered
// with remote access, and the owner must trust its peers. Each peer of this runtime that knows the
// key, or guesses it, reaches the memory. Such a peer does there what it likes, until the owner
// lets go of the memory. So the words have a registration of their own: the key opens them, and
// nothing that lies beside them.

#include <cordma/cordma.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <stdexcept>
#include <string_view>

namespace {

using cordma::verbs::access;

constexpr std::uint32_t clients = 3;
constexpr std::uint64_t additions = 1000;  // additions of each client to each counter
constexpr std::uint64_t unlocked = 0;      // any other value is the holder of the lock
constexpr std::chrono::seconds patience{30};

cordma::task<> lock(cordma::connection& conn, cordma::remote_mr_slice word, std::uint64_t me) {
  for (;;) {
    const std::uint64_t holder = co_await conn.compare_swap(word, unlocked, me);
    if (holder == unlocked) co_return;
  }
}

cordma::task<> unlock(cordma::connection& conn, cordma::remote_mr_slice word, std::uint64_t me) {
  const std::uint64_t holder = co_await conn.compare_swap(word, me, unlocked);
  if (holder != me) throw std::runtime_error{"somebody else took the lock away"};
}

cordma::task<> add(cordma::runtime& rt, cordma::endpoint owner) {
  cordma::connection conn = co_await rt.connect(owner);
  cordma::local_mr buffer = rt.memory().allocate_zeroed(64);
  const cordma::message told = co_await conn.recv(buffer);
  const std::uint64_t me = told.immediate.value_or(0);
  const auto words = cordma::remote_mr_slice::decode(told.payload().bytes());
  const auto mutex = words.slice(0, 8), plain = words.slice(8, 8), atomic = words.slice(16, 8);

  cordma::local_mr copy = rt.memory().allocate_zeroed(8);
  for (std::uint64_t i = 0; i < additions; ++i) {
    // A client that dies with the lock keeps it: the others give up, then.
    co_await cordma::with_timeout(lock(conn, mutex, me), patience);
    co_await conn.read(copy, plain);
    ++copy.slice().as<std::uint64_t>()[0];
    co_await conn.write(copy, plain);
    co_await unlock(conn, mutex, me);

    co_await conn.fetch_add(atomic, 1);
  }
  std::printf("client %" PRIu64 ": added %" PRIu64 " to each\n", me, additions);
  co_await conn.send(copy);  // The owner waits for the message, whatever it says.
  co_await conn.close();
}

/// Tells one client where the words are, and its number; waits until it is done.
cordma::task<> guide(cordma::runtime& rt, cordma::connection conn, cordma::remote_mr_slice words,
                     std::uint32_t number) {
  cordma::local_mr note = rt.memory().allocate_zeroed(64);
  conn.post_recv(note.last(8));
  std::ranges::copy(words.encode(), note.bytes().begin());
  co_await conn.send_with_imm(note.first(cordma::remote_mr_slice::encoded_bytes), number);
  co_await conn.next_message();
  co_await conn.close();
}

cordma::task<> own(cordma::runtime& rt, cordma::listener& listener) {
  alignas(64) std::array<std::uint64_t, 3> words{};  // The lock, the plain counter, the atomic one.
  const cordma::local_mr shared = rt.memory(access::local_write | access::remote_read |
                                            access::remote_write | access::remote_atomic)
                                      .register_external(std::as_writable_bytes(std::span{words}));
  std::uint32_t come = 0;
  std::uint32_t gone = 0;
  const auto one_is_gone = [&] {
    if (++gone == clients) listener.close();
  };
  const auto serve_one = [&](cordma::connection conn) -> cordma::task<> {
    co_await guide(rt, std::move(conn), shared.remote_slice(), ++come);
    one_is_gone();
  };
  const auto note_lost = [&](const cordma::handler_failure& lost) {
    std::fprintf(stderr, "owner: %s\n", lost.to_string().c_str());
    one_is_gone();
  };
  co_await cordma::serve(listener, serve_one, note_lost);

  // The owner reads only now: what is atomic among requests to one device need not be so for the
  // processor.
  std::printf("owner: %" PRIu64 " under the lock, %" PRIu64 " by fetch_add\n", words[1], words[2]);
  if (words != std::array<std::uint64_t, 3>{unlocked, clients * additions, clients * additions}) {
    throw std::runtime_error{"owner: an addition was lost"};
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Line by line, also into a pipe.
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (role == "server") {
    cordma::runtime rt{{.device = argc > 2 ? argv[2] : ""}};
    cordma::listener listener = rt.listen();
    std::printf("listening on %s\n", listener.local_endpoint().to_string().c_str());
    rt.run(own(rt, listener));
  } else if (role == "client" && argc > 2) {
    cordma::runtime rt{{.device = argc > 3 ? argv[3] : ""}};
    rt.run(add(rt, cordma::endpoint::parse(argv[2])));
  } else {
    std::fprintf(stderr, "usage: %s server [DEVICE] | client HOST:PORT [DEVICE]\n", argv[0]);
    return 2;
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
