#include "connection/resolve_gid.hpp"

#include "support/connected_pair.hpp"
#include "support/raw_peer.hpp"
#include "support/some_hello.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <dlfcn.h>
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <semaphore>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

/// While it is closed, the kernel's search for a way takes as long as the test likes.
std::atomic<bool> is_closed = false;
std::atomic<bool> is_searching = false;  ///< A search waits until it is open.
std::counting_semaphore<> opened{0};
constexpr auto patience = 20s;

}  // namespace

// The library's calls lead here, and from here to libibverbs.
extern "C" ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  static auto* const next =
      reinterpret_cast<decltype(&ibv_create_ah)>(::dlsym(RTLD_NEXT, "ibv_create_ah"));
  if (is_closed) {
    is_searching = true;
    static_cast<void>(opened.try_acquire_for(patience));
    is_searching = false;
  }
  return next(pd, attributes);
}

TEST_CASE("a stop of the search for a GID leaves the thread to others", "[connection][device]") {
  manual_clock clock;
  runtime rt{test::on_test_device(test::by_hand(clock))};
  const verbs::port_info port = rt.context().active_port();
  const verbs::gid_entry own = verbs::choose_gid(rt.context().gid_table(port.number));
  is_closed = true;
  bool has_others_run = false;
  const auto others = [&]() -> task<> {
    clock.advance(2ms);
    co_await test::due_timers_fired();
    has_others_run = true;
    opened.release();
  };
  const auto search = [&]() -> task<bool> {
    static_cast<void>(co_await as_result(
        with_timeout(detail::resolve_gid(rt.executor(), rt.protection_domain(), port.number,
                                         verbs::address_vector::by_gid(own.gid, own.index)),
                     1ms)));
    co_return has_others_run;
  };
  auto [ended_after_others, done] = rt.run(when_all(search(), others()));
  is_closed = false;
  CHECK(ended_after_others);
}

TEST_CASE("while a listener looks for the way to a client, the executor serves others",
          "[connection][device]") {
  test::connected_pair p;
  if (!p.rt.context().active_port().is_ethernet()) return;
  handshake::hello hello = p.client.local_hello();
  hello.gid.raw[15] ^= 0x55;
  connection_options options;
  options.allow_foreign_gid = true;
  listener acceptor = p.rt.listen({}, {}, options);
  is_closed = true;
  bool is_answered = false;
  bool was_served_meanwhile = false;
  const auto speak = [&]() -> task<> {
    test::raw_peer peer = co_await stream_socket::connect(
        p.rt.executor(), socket_address::loopback(acceptor.local_endpoint().port));
    co_await test::greet(peer, hello);
    static_cast<void>(co_await as_result(bootstrap::read_hello(peer)));
    is_answered = true;
  };
  const auto serve_others = [&]() -> task<> {
    const auto begun = [] { return is_searching.load(); };
    const auto seen =
        co_await as_result(with_timeout(test::until(p.rt.executor(), begun), patience));
    if (seen.has_value()) {
      co_await p.open({});
      was_served_meanwhile = p.client.is_open() && is_searching && !is_answered;
    }
    opened.release();
  };
  p.rt.run(when_all(speak(), serve_others()));
  is_closed = false;
  CHECK(was_served_meanwhile);
  CHECK(is_answered);
}
