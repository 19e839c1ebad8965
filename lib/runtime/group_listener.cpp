#include <cordma/runtime/runtime_group.hpp>

#include "base/check_option.hpp"
#include "connection/acceptor.hpp"
#include "connection/addresses.hpp"
#include "connection/bootstrap_services.hpp"
#include "connection/connection_state.hpp"
#include "connection/handshake_set.hpp"
#include "io/logger.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <exception>
#include <future>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace cordma {
namespace {

/// Checks options early, so that values that no client could ever get are an error here.
void check_connections(const verbs::context& ctx, const connection_options& options) {
  const verbs::port_info port =
      options.port == 0 ? ctx.active_port() : ctx.query_port(options.port);
  check(options, ctx.limits(), port);
}

void check(const serve_options& o) {
  const auto range = [](const char* name, long long value, long long high) {
    check_option("serve_options", name, value, 1, high);
  };
  range("connections_max", o.connections_max, serve_options::connections_limit);
  range("handshakes_max", o.handshakes_max, listener_options::handshakes_limit);
  check_timeout("serve_options", "handshake_timeout", o.handshake_timeout);
  range("tcp_backlog", o.tcp_backlog, 65535);
}

/// Logs that a listener is closed, when nothing accepts any more.
class log_of_end {
 public:
  log_of_end(const detail::logger* log, std::string_view listened_at) noexcept
      : log_{log}, listened_at_{listened_at} {}
  log_of_end(const log_of_end&) = delete;
  ~log_of_end() {
    detail::log_to(log_, event_log::kind::listener_closed, {.local_name = listened_at_});
  }

 private:
  const detail::logger* const log_;
  const std::string_view listened_at_;
};

/// Calls `f` on the thread of `rt`. \errors what the call throws; that thread then refers to the
/// exception no more.
template <class F>
void call_on(runtime& rt, F f) {
  std::exception_ptr why;
  std::promise<void> promise;
  std::future<void> ended = promise.get_future();
  rt.executor().post([&f, &why, p = std::move(promise)]() mutable noexcept {
    try {
      f();
    } catch (...) {
      why = std::current_exception();
    }
    p.set_value();
  });
  ended.get();
  if (why != nullptr) std::rethrow_exception(std::move(why));
}

}  // namespace

/// One thread's share of the listener, on its own cache lines.
struct alignas(64) group_listener::seat {
  seat(const member_runtime& where, unsigned member_index, const serve_options& wished)
      : rt{where.rt},
        work{where.work},
        index{member_index},
        terms{where.rt.resources(), changed(where.rt.connection_defaults(), wished.connections),
              wished.admit},
        handshakes{where.rt.executor(), wished.handshakes_max, wished.handshake_timeout} {}

  runtime& rt;
  scope& work;
  const unsigned index;
  detail::handshake_terms terms;  // Unchanged once they are served.
  std::string listens_at;         // Likewise.
  // The seat's own thread writes the following members.
  detail::handshake_set handshakes;
  unsigned owed = 0;  // Ended connections that the first thread does not know of yet.
  counter connected;
  counter rejected;
  counter dropped;
  counter handlers_failed;
  // The first thread writes the following members.
  alignas(64) unsigned connections = 0;
  counter accept_errors;
};

group_listener::group_listener(const std::vector<member_runtime>& member_runtimes,
                               const endpoint& local, serve_options options,
                               connection_handler handler)
    : options_{(check(options), std::move(options))},
      handler_{std::move(handler)},
      room_{options_.connections_max},
      last_seat_{member_runtimes.size() - 1} {
  CORDMA_ASSERT(handler_ != nullptr, "connections are served by a handler");
  for (const member_runtime& where : member_runtimes) {
    seats_.push_back(std::make_unique<seat>(where, unsigned(seats_.size()), options_));
    seat& made = *seats_.back();
    const auto prepare = [&] {
      if (options_.connections_of)
        made.terms.options =
            changed(made.rt.connection_defaults(), options_.connections_of(made.rt, made.index));
      if (local.kind == endpoint::bootstrap::rdma_cm) made.terms.resources.bootstraps.cm_events();
    };
    call_on(made.rt, prepare);
    check_connections(made.rt.context(), made.terms.options);
  }
  seat& first = *seats_.front();
  const socket_address where = detail::listening_address(first.rt.executor(), local);
  for (const auto& each : seats_) detail::check_reach(where, each->terms.options);
  call_on(first.rt, [&] {
    acceptor_ =
        detail::open_acceptor(first.terms.resources, local.kind, where, options_.tcp_backlog);
  });
  local_ = detail::endpoint_of(acceptor_->local_address());
  local_.kind = local.kind;
}

group_listener::~group_listener() = default;

void group_listener::start() {
  for (const auto& each : seats_) each->listens_at = local_.to_string();
  seat& first = *seats_.front();
  call_on(first.rt, [&] {
    first.work.spawn(accept_all(std::move(acceptor_)));
    detail::log_to(first.terms.resources.log, event_log::kind::listening,
                   {.local_name = first.listens_at});
  });
}

group_listener_counters group_listener::counters() const noexcept {
  group_listener_counters sum;
  for (const auto& one : seats_) {
    sum.connected += one->connected.value();
    sum.rejected += one->rejected.value();
    sum.dropped += one->dropped.value();
    sum.handlers_failed += one->handlers_failed.value();
    sum.accept_errors += one->accept_errors.value();
  }
  return sum;
}

// ---- the first thread ------------------------------------------------------------------------

task<> group_listener::accept_all(std::unique_ptr<detail::acceptor> acceptor) {
  const detail::logger* const log = seats_.front()->terms.resources.log;
  const std::string& listens_at = seats_.front()->listens_at;
  const log_of_end logs_end{log, listens_at};
  for (;;) {
    try {
      client newcomer = co_await acceptor->accept();
      for (;;) {
        const auto acquired = co_await as_result(with_timeout(room_.acquire(), crowded_timeout));
        if (acquired.is_cancelled()) co_return;
        if (acquired.has_value()) break;
        drop_handshakes();
      }
      if (hand_over(std::move(newcomer))) continue;
      room_.release();
    } catch (const error& e) {
      detail::log_to(log, event_log::kind::accept_failed,
                     {.local_name = listens_at, .why = &e.failure()});
      if (e.code() == errc::device_failed) co_return seats_.front()->accept_errors.add();
      // The client may be taken later.
    } catch (const std::bad_alloc&) {
      // The client finds its way closed.
    }
    seats_.front()->accept_errors.add();
    co_await sleep_for(accept_pause);
  }
}

/// Drops those handshakes of all threads that have lasted for long enough.
void group_listener::drop_handshakes() noexcept {
  const failure why = detail::dropped_at("connections_max", options_.connections_max);
  for (const auto& each : seats_) {
    try {
      each->rt.executor().post([&set = each->handshakes, why]() noexcept { set.drop_all(why); });
    } catch (const std::bad_alloc&) {
      // The thread's handshakes keep their places.
    }
  }
}

bool group_listener::hand_over(client newcomer) noexcept {
  seat& to = next_seat(*newcomer);
  try {
    newcomer->move_to(to.terms.resources);
    to.rt.executor().post(
        [this, &to, n = std::move(newcomer)]() mutable noexcept { begin(to, std::move(n)); });
  } catch (const error&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
  ++to.connections;
  return true;
}

/// Returns the seat with the fewest connections; among several, the first after the last choice. A
/// client whose device no seat has is refused by any.
group_listener::seat& group_listener::next_seat(const detail::arrival& newcomer) noexcept {
  const auto rank = [&](std::size_t i) {
    const seat& one = *seats_[i];
    return std::pair{!newcomer.may_move_to(one.terms.resources), one.connections};
  };
  std::size_t best = (last_seat_ + 1) % seats_.size();
  for (std::size_t i = 1; i < seats_.size(); ++i) {
    const std::size_t other = (last_seat_ + 1 + i) % seats_.size();
    if (rank(other) < rank(best)) best = other;
  }
  last_seat_ = best;
  return *seats_[best];
}

// ---- the thread that a client was passed to --------------------------------------------------

void group_listener::begin(seat& here, client newcomer) noexcept {
  try {
    here.work.spawn(serve(here, std::move(newcomer)));
  } catch (const std::bad_alloc&) {
    give_back(here);
  }
}

task<> group_listener::serve(seat& here, client newcomer) {
  bool is_connected = false;
  std::optional<detail::handshake_set::member> handshake;
  handler_failure failed{newcomer->peer, nullptr};
  try {
    const detail::client_host host = detail::host_of(newcomer->peer);
    detail::handshake_set::permit held = co_await here.handshakes.enter(host);
    handshake.emplace(here.handshakes, std::move(held), host);
    result<connection> made = co_await as_result(handshake->run(newcomer->shake_hands(here.terms)));
    if (made.has_failure()) {
      detail::log_to(
          here.terms.resources.log, event_log::kind::client_refused,
          {.peer = &newcomer->peer, .local_name = here.listens_at, .why = &made.failure()});
      co_await handshake->refuse(newcomer->refuse(made.failure()));
    }
    connection conn = std::move(made).value();
    handshake.reset();
    newcomer.reset();
    is_connected = true;
    here.connected.add();
    task<> handling = handler_(here.rt, here.index, std::move(conn));
    co_await std::move(handling);
  } catch (const cancelled&) {
    // The group is being stopped.
  } catch (...) {
    failed.why = std::current_exception();
  }
  if (failed.why != nullptr) {
    const bool was_dropped = handshake && handshake->was_dropped();
    counter& kind = is_connected  ? here.handlers_failed
                    : was_dropped ? here.dropped
                                  : here.rejected;
    kind.add();
    if (options_.on_failure) options_.on_failure(here.index, failed);
  }
  give_back(here);
}

void group_listener::give_back(seat& here) noexcept {
  ++here.owed;
  try {
    seats_.front()->rt.executor().post([this, &here, count = here.owed]() noexcept {
      here.connections -= count;
      room_.release(count);
    });
    here.owed = 0;
  } catch (const std::bad_alloc&) {
    // The next connection reports both.
  }
}

}  // namespace cordma
