#include "listener_state.hpp"

#include "base/check_option.hpp"

#include <cordma/coro/sleep.hpp>
#include <cordma/io/executor.hpp>

#include <exception>
#include <new>
#include <utility>

namespace cordma {

void check(const listener_options& o) {
  const auto check_range = [](const char* name, long long value, long long low, long long high) {
    check_option("listener_options", name, value, low, high);
  };
  check_range("handshakes_max", o.handshakes_max, 1, listener_options::handshakes_limit);
  check_range("ready_max", o.ready_max, 1, listener_options::ready_limit);
  check_timeout("listener_options", "handshake_timeout", o.handshake_timeout);
  check_range("tcp_backlog", o.tcp_backlog, 1, 65535);
}

namespace detail {

listener_state::listener_state(cordma::executor& owner, std::unique_ptr<acceptor> clients,
                               callback<task<connection>(arrival&)> shake_hands,
                               const listener_options& options, const logger* log)
    : executor{(check(options), owner)},
      all_ended{owner},
      acceptor_{std::move(clients)},
      shake_hands_{std::move(shake_hands)},
      log_{log},
      local_{acceptor_->local_address()},
      handshakes_{owner, options.handshakes_max, options.handshake_timeout},
      ready_{options.ready_max},
      tasks_{owner} {
  tasks_.spawn(accept_loop());
}

void listener_state::close() noexcept {
  if (std::exchange(is_closing_, true)) return;
  const bool has_failed = why_closed_.code != errc::closed;
  log_to(log_, event_log::kind::listener_closed,
         {.local = &local_, .why = has_failed ? &why_closed_ : nullptr});
  ready_.close();
  tasks_.request_stop();
  acceptor_->close();
  try {
    executor.closer().spawn(finish());
  } catch (const std::bad_alloc&) {
    // The handshakes, which are not waited for, end where they are: `drop` destroys them.
    is_finished_ = true;
    all_ended.set();
  }
}

void listener_state::close(const failure& why) noexcept {
  why_closed_ = why;
  close();
}

void listener_state::drop() noexcept {
  close();
  is_dropped_ = true;
  if (is_finished_) delete this;
}

task<> listener_state::finish() {
  try {
    co_await tasks_.join();
  } catch (const std::exception&) {
    // The handshake had no memory, and nobody is left to notify.
  }
  all_ended.set();
  is_finished_ = true;
  if (is_dropped_) delete this;
}

task<connection> listener_state::accept_open() {
  for (;;) {
    std::optional<connection> next = co_await accept();
    if (!next) throw error{why_closed_};
    if (next->is_open()) co_return std::move(*next);  // The client may have left meanwhile.
  }
}

task<> listener_state::accept_loop() {
  for (;;) {
    try {
      std::unique_ptr<arrival> client = co_await acceptor_->accept();
      const client_host host = host_of(client->peer);
      handshake_set::permit permit = co_await handshakes_.enter(host);
      auto handshake =
          std::make_unique<handshake_set::member>(handshakes_, std::move(permit), host);
      tasks_.spawn(serve(std::move(client), std::move(handshake)));
      continue;
    } catch (const error& e) {
      if (e.code() == errc::closed || e.code() == errc::device_failed) co_return close(e.failure());
      // The client may be taken later.
      log_to(log_, event_log::kind::accept_failed, {.local = &local_, .why = &e.failure()});
    } catch (const std::bad_alloc&) {
      // The client finds its way closed.
    }
    ++counters.accept_errors;
    co_await sleep_for(accept_pause);
  }
}

task<> listener_state::serve(std::unique_ptr<arrival> client,
                             std::unique_ptr<handshake_set::member> handshake) {
  result<connection> made = failure{};
  try {
    made = co_await as_result(handshake->run(shake_hands_(*client)));
    // A task may throw exceptions that are not cordma's: bad_alloc.
  } catch (const std::exception& e) {
    made = failure{.code = errc::refused, .call = "handshake", .detail = e.what()};
  }
  if (made.has_value()) {
    ++counters.completed;
    // If the listener was closed meanwhile, the connection is dropped.
    static_cast<void>(co_await as_result(ready_.send(std::move(*made))));
  } else if (made.has_failure()) {
    ++(handshake->was_dropped() ? counters.dropped : counters.rejected);
    last_rejection = made.failure();
    log_to(log_, event_log::kind::client_refused,
           {.peer = &client->peer, .local = &local_, .why = &*last_rejection});
    try {
      co_await handshake->refuse(client->refuse(*last_rejection));
    } catch (const std::exception&) {
      // After a stop, or without memory, the client finds the stream closed.
    }
  }
}

}  // namespace detail
}  // namespace cordma
