#include "call.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <string>

using namespace cordma::c;
using cordma::task;

namespace cordma::c {

handle adopt(context& in, connection made);
endpoint endpoint_of(const char* address);

}  // namespace cordma::c

namespace {

/// Waits for the next client until a stop of `run`, or of the task.
class next_client_op : public cordma::operation_base<next_client_op> {
 public:
  using value_type = cordma::connection;
  next_client_op(cordma::listener& at, ref<accept_run> run)
      : op_{at.accept()}, run_{std::move(run)} {}
  bool start(cordma::waiter& w, const cordma::environment& env) {
    return op_.start(w, {env.scheduler, cordma::stop_token{run_->stop}});
  }
  [[nodiscard]] bool failed() const noexcept { return op_.failed(); }
  cordma::result<cordma::connection> take_result() { return op_.take_result(); }

 private:
  task<cordma::connection> op_;
  ref<accept_run> run_;
};

/// Gives clients to the program until `cordma_stop`, or until the listener is closed or fails.
task<> accept_all(ref<listener_object> l, ref<accept_run> run) {
  while (!run->stop.stop_requested() && l->acceptor) {
    auto next = co_await as_result(next_client_op{*l->acceptor, run});
    // A client that was promised before the stop is dropped.
    if (next.is_cancelled() || run->stop.stop_requested() || !l->acceptor) co_return;
    cordma_connection made = nullptr;
    const int status = guarded([&] {
      if (next.has_failure()) return note(outcome_of(next.failure()));
      made = pointer_of<cordma_connection>(adopt(l->owner, std::move(*next)));
      return int{CORDMA_OK};
    });
    const bool is_over = next.has_failure();
    if (is_over) l->run = {};
    l->accepted(pointer_of<cordma_listener>(l->number), made, status, l->user);
    if (is_over) co_return;
  }
}

/// Gives messages to the program until the connection ends.
task<> receive_all(ref<connection_object> c) {
  while (c->link) {
    cordma::result<cordma::message> next = cordma::cancelled_result;
    if (c->kept) {
      next = *c->kept;
      c->kept.reset();
    } else {
      next = co_await as_result(c->link.next_message());
    }
    const auto connection = pointer_of<cordma_connection>(c->number);
    if (!c->link || next.is_cancelled()) co_return;
    if (next.has_failure()) {
      const int status = note(outcome_of(next.failure()));
      if (c->failed != nullptr) c->failed(connection, status, c->user);
      co_return;
    }
    const cordma_message about = described(*next);
    c->received(connection, about.is_write != 0 ? nullptr : next->payload().bytes().data(), &about,
                c->user);
    if (c->link) {
      static_cast<void>(guarded([&] {
        c->repost(*next);
        return int{CORDMA_OK};
      }));
    }
  }
}

task<> connect_and_tell(context& in, cordma::endpoint server, std::int64_t timeout_us,
                        cordma_connected* connected, void* user) {
  const cordma::connection_changes changes{.connect_timeout = option_of(timeout_us)};
  auto made = co_await as_result(in.rt.connect(std::move(server), changes));
  cordma_connection connection = nullptr;
  int status = CORDMA_OK;
  if (made.has_value()) {
    status = guarded([&] {
      connection = pointer_of<cordma_connection>(adopt(in, std::move(*made)));
      return int{CORDMA_OK};
    });
  } else if (made.has_failure()) {
    status = note(outcome_of(made.failure()));
  } else {
    status = note(CORDMA_CANCELLED, "cordma_start_connect: stopped by cordma_release");
  }
  connected(connection, status, user);
}

}  // namespace

int cordma_set_accept_callback(cordma_listener listener, cordma_accepted* accepted, void* user) {
  if (accepted == nullptr)
    return note(CORDMA_BAD_ARGUMENT, "cordma_set_accept_callback: accepted is null");
  return enter<listener_object>(number_of(listener), [&](listener_object& l) {
    if (l.run) return note(CORDMA_WRONG_STATE, "set the accept callback before cordma_start");
    l.accepted = accepted;
    l.user = user;
    return int{CORDMA_OK};
  });
}

int cordma_start(cordma_listener listener) {
  return enter<listener_object>(number_of(listener), [](listener_object& l) {
    if (l.accepted == nullptr)
      return note(CORDMA_WRONG_STATE, "cordma_start: set an accept callback first");
    if (l.run) return note(CORDMA_WRONG_STATE, "cordma_start: started already");
    const ref<accept_run> run{*new accept_run};
    l.owner.tasks.spawn(accept_all(ref<listener_object>{l}, run));
    l.run = run;
    l.owner.kick();
    return int{CORDMA_OK};
  });
}

int cordma_stop(cordma_listener listener) {
  return enter<listener_object>(number_of(listener), [](listener_object& l) {
    if (!l.run) return note(CORDMA_WRONG_STATE, "cordma_stop: not started");
    l.run->stop.request_stop();
    l.run = {};
    l.owner.kick();
    return int{CORDMA_OK};
  });
}

int cordma_start_connect(cordma_context in, const char* address, int64_t timeout_us,
                         cordma_connected* connected, void* user) {
  if (address == nullptr || connected == nullptr)
    return note(CORDMA_BAD_ARGUMENT, "cordma_start_connect: address or connected is null");
  return enter_within<context>(number_of(in), timeout_us, [&](context& c, int64_t left_us) {
    c.tasks.spawn(connect_and_tell(c, endpoint_of(address), left_us, connected, user));
    c.kick();
    return int{CORDMA_OK};
  });
}

int cordma_set_receive_callback(cordma_connection connection, cordma_received* received,
                                cordma_failed* failed, void* user) {
  if (received == nullptr)
    return note(CORDMA_BAD_ARGUMENT, "cordma_set_receive_callback: received is null");
  return enter<connection_object>(number_of(connection), [&](connection_object& c) {
    if (c.received != nullptr)
      return note(CORDMA_WRONG_STATE, "the connection has a receive callback already");
    if (c.is_receiving)
      return note(CORDMA_WRONG_STATE,
                  "a call waits for the connection's messages: set the callback after its end");
    c.owner.tasks.spawn(receive_all(ref<connection_object>{c}));
    c.received = received;
    c.failed = failed;
    c.user = user;
    c.owner.kick();
    return int{CORDMA_OK};
  });
}

int cordma_descriptor(cordma_context in, int* descriptor) {
  if (descriptor == nullptr)
    return note(CORDMA_BAD_ARGUMENT, "cordma_descriptor: descriptor is null");
  *descriptor = -1;
  return enter<context>(number_of(in), [&](context& c) {
    if (c.loop == nullptr)
      return note(CORDMA_WRONG_STATE,
                  "the context has no descriptor: make it with options.loop = CORDMA_DESCRIPTOR");
    *descriptor = c.loop->descriptor();
    return int{CORDMA_OK};
  });
}

int cordma_dispatch(cordma_context in) {
  return enter<context>(number_of(in), [](context& c) {
    if (c.loop == nullptr)
      return note(CORDMA_WRONG_STATE,
                  "cordma_dispatch: make the context with options.loop = CORDMA_DESCRIPTOR");
    if (runs_context) return in_callback();
    const context_run here;
    c.rt.executor().run(c.loop->until_idle());
    return int{CORDMA_OK};
  });
}
