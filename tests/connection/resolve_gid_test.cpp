#include "connection/resolve_gid.hpp"

#include "support/connected_pair.hpp"
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
std::counting_semaphore<> opened{0};
constexpr auto patience = 20s;

}  // namespace

// The library's calls lead here, and from here to libibverbs.
extern "C" ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  static auto* const next =
      reinterpret_cast<decltype(&ibv_create_ah)>(::dlsym(RTLD_NEXT, "ibv_create_ah"));
  if (is_closed) static_cast<void>(opened.try_acquire_for(patience));
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
