#include <cordma/connection/listener.hpp>

#include "base/check_option.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/semaphore.hpp>
#include <cordma/io/executor.hpp>

#include <new>
#include <utility>

namespace cordma {
namespace {

constexpr long long connections_limit = 1 << 20;

/// Arguments of `serve`, and the state that its connections share.
struct service {
  const callback<task<>(connection conn)>& handler;
  const callback<void(const handler_failure& failed)>& on_failure;
  semaphore room;

  void tell(const socket_address& peer, std::exception_ptr why) const {
    if (on_failure) on_failure({peer, std::move(why)});
  }
};

task<> handle(service& all, connection conn) {
  const socket_address peer = conn.peer();
  try {
    task<> handling = all.handler(std::move(conn));
    co_await std::move(handling);
  } catch (const cancelled&) {
    // The handler ended normally.
  } catch (...) {
    all.tell(peer, std::current_exception());
  }
  all.room.release();
}

}  // namespace

std::string handler_failure::to_string() const {
  std::string text = peer.to_string() + ": ";
  try {
    std::rethrow_exception(why);
  } catch (const std::exception& e) {
    text += e.what();
  } catch (...) {
    text += "its handler threw what is no std::exception";
  }
  return text;
}

task<> serve(listener& acceptor, callback<task<>(connection conn)> handler,
             callback<void(const handler_failure& failed)> on_failure, unsigned connections_max) {
  CORDMA_ASSERT(handler != nullptr, "connections are served by a handler");
  check_option("serve", "connections_max", connections_max, 1, connections_limit);
  service all{handler, on_failure, semaphore{connections_max}};
  const auto accept_all = [&](scope& running) -> task<> {
    for (;;) {
      co_await all.room.acquire();
      result<connection> next = co_await as_result(acceptor.accept());
      if (next.has_failure() && next.failure().code == make_error_code(errc::closed)) co_return;
      connection conn = std::move(next).value();
      const socket_address peer = conn.peer();
      try {
        running.spawn(handle(all, std::move(conn)));
      } catch (const std::bad_alloc&) {
        all.tell(peer, std::current_exception());
        all.room.release();
      }
    }
  };
  co_await with_scope(accept_all, &acceptor.executor());
}

}  // namespace cordma
