#include "call.hpp"
#include "runtime/cpus.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <thread>

using namespace cordma::c;

namespace cordma::c {

/// Takes a connection into the table. \errors what `connection_object` throws; `std::bad_alloc`.
handle adopt(context& in, connection made) {
  const ref<connection_object> one{*new connection_object{in, std::move(made)}};
  in.adopt(kind::connection, *one.get());
  return one->number;
}

endpoint endpoint_of(const char* address) {
  return address == nullptr ? endpoint{} : endpoint{std::string_view{address}};
}

}  // namespace cordma::c

namespace {

using cordma::connection;
using cordma::task;

/// Makes the context and runs it, on a thread of its own.
void serve(cordma::c::context_options options, std::shared_ptr<foreign_calls> calls,
           std::promise<handle> made) noexcept {
  ref<context> own;
  try {
    if (options.cpu) cordma::pin_to(*options.cpu);
    own = ref<context>{*new context{std::move(options), std::move(calls)}};
    own->adopt(kind::context, *own.get());
  } catch (...) {
    return made.set_exception(std::current_exception());
  }
  made.set_value(own->number);
  own->serve();
}

handle init_thread(context_options&& options) {
  const auto calls = std::make_shared<foreign_calls>();
  std::promise<handle> promised;
  std::future<handle> made = promised.get_future();
  std::thread own{&serve, std::move(options), calls, std::move(promised)};
  try {
    const handle number = made.get();
    calls->thread = std::move(own);
    return number;
  } catch (...) {
    own.join();
    throw;
  }
}

handle init_here(context_options&& options) {
  const ref<context> made{*new context{std::move(options), nullptr}};
  made->adopt(kind::context, *made.get());
  return made->number;
}

int release_here(context& in, std::int64_t timeout_us) {
  if (runs_context) return in_callback();
  const context_run here;
  const ref<context> kept{in};
  context::abandon(in);
  in.rt.executor().run(in.shut_down(timeout_us));
  return CORDMA_OK;
}

}  // namespace

int cordma_init(const cordma_options* options, cordma_context* made) {
  if (made == nullptr) return note(CORDMA_BAD_ARGUMENT, "cordma_init: context is null");
  *made = nullptr;
  return guarded([&] {
    context_options wanted = checked(options);
    const bool has_thread = wanted.loop == CORDMA_THREAD;
    *made = pointer_of<cordma_context>(has_thread ? init_thread(std::move(wanted))
                                                  : init_here(std::move(wanted)));
    return int{CORDMA_OK};
  });
}

int cordma_release(cordma_context context_handle, int64_t timeout_us) {
  const handle number = number_of(context_handle);
  const auto here = handles().find(kind::context, number);
  if (here.how == handle_table::state::bad) return bad_handle(kind::context);
  if (here.how == handle_table::state::found) {
    return guarded([&] { return release_here(static_cast<context&>(*here.what), timeout_us); });
  }
  std::shared_ptr<foreign_calls> calls;
  const int status = guarded([&] {
    calls = handles().calls_of(number);  // The release closes the handle.
    return enter<context>(number, [timeout_us](context& in) {
      context::abandon(in);
      in.request_release(timeout_us);
      return int{CORDMA_OK};
    });
  });
  if (status == CORDMA_OK) calls->thread.join();
  return status;
}

int cordma_listen(cordma_context in, const char* address, cordma_listener* made) {
  if (made == nullptr) return note(CORDMA_BAD_ARGUMENT, "cordma_listen: made is null");
  *made = nullptr;
  return enter<context>(number_of(in), [&](context& c) {
    const ref<listener_object> one{*new listener_object{c, c.rt.listen(endpoint_of(address))}};
    c.adopt(kind::listener, *one.get());
    *made = pointer_of<cordma_listener>(one->number);
    c.kick();
    return int{CORDMA_OK};
  });
}

int cordma_address(cordma_listener listener, char* text, size_t room) {
  if (text == nullptr) return note(CORDMA_BAD_ARGUMENT, "cordma_address: text is null");
  return enter<listener_object>(number_of(listener), [&](listener_object& l) {
    const std::string address = l.acceptor->local_endpoint().to_string();
    if (address.size() >= room)
      return note(CORDMA_WRONG_LENGTH, "cordma_address: room is less than the address and its 0");
    std::memcpy(text, address.c_str(), address.size() + 1);
    return int{CORDMA_OK};
  });
}

int cordma_close(cordma_listener listener) {
  return enter<listener_object>(number_of(listener), [](listener_object& l) {
    const ref<listener_object> kept{l};
    context::abandon(l);
    l.acceptor.reset();
    l.owner.kick();
    return int{CORDMA_OK};
  });
}

int cordma_accept(cordma_listener listener, int64_t timeout_us, cordma_connection* made) {
  if (made == nullptr) return note(CORDMA_BAD_ARGUMENT, "cordma_accept: made is null");
  *made = nullptr;
  context* in = nullptr;
  return block<listener_object>(
      number_of(listener), timeout_us,
      [&](listener_object& l) {
        if (l.run)
          throw misuse{CORDMA_WRONG_STATE, "the listener's clients go to its accept callback"};
        in = &l.owner;
        return l.acceptor->accept();
      },
      [&](connection&& c) {
        *made = pointer_of<cordma_connection>(cordma::c::adopt(*in, std::move(c)));
      });
}

int cordma_connect(cordma_context in, const char* address, int64_t timeout_us,
                   cordma_connection* made) {
  if (made == nullptr) return note(CORDMA_BAD_ARGUMENT, "cordma_connect: made is null");
  *made = nullptr;
  if (address == nullptr) return note(CORDMA_BAD_ARGUMENT, "cordma_connect: address is null");
  context* of = nullptr;
  return block<context>(
      number_of(in), timeout_us,
      [&](context& c) {
        of = &c;
        return c.rt.connect(endpoint_of(address), {.connect_timeout = option_of(timeout_us)});
      },
      [&](connection&& c) {
        *made = pointer_of<cordma_connection>(cordma::c::adopt(*of, std::move(c)));
      });
}

namespace {

/// Ends a connection, which is dropped when the time is up.
task<> say_goodbye(connection link) { co_await link.close(); }

task<> say_goodbye_quietly(connection link) { static_cast<void>(co_await as_result(link.close())); }

}  // namespace

int cordma_disconnect(cordma_connection connection, int64_t timeout_us) {
  const handle number = number_of(connection);
  const auto leave = [&](connection_object& c) {
    const ref<connection_object> kept{c};
    context::abandon(c);
    return std::move(c.link);
  };
  const bool waits = timeout_us != 0 && !runs_context;
  if (!waits) {
    return enter<connection_object>(number, [&](connection_object& c) {
      context& in = c.owner;
      in.tasks.spawn(say_goodbye_quietly(leave(c)));
      in.kick();
      return int{CORDMA_OK};
    });
  }
  return block<connection_object>(
      number, timeout_us, [&](connection_object& c) { return say_goodbye(leave(c)); }, [] {},
      if_late::begin);
}
