#include "tries.hpp"

#include <cordma/coro/sleep.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <array>
#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>

namespace doctor {
namespace {

using namespace std::chrono_literals;
using cordma::connection;
using cordma::io_backend;
using cordma::runtime;
using cordma::task;

constexpr int rounds = 5;
constexpr std::size_t slow_message_bytes = 64;
constexpr auto deadline = 10s;

cordma::runtime_options options_with(const subject& s, io_backend backend) {
  cordma::runtime_options options = options_for(s);
  options.executor.backend = backend;
  options.cq.mode = cordma::completion_mode::event;
  return options;
}

/// Answers late enough for the client's thread to sleep meanwhile.
task<> answer_slowly(runtime& rt, cordma::listener& listener) {
  connection conn = co_await listener.accept();
  cordma::local_mr memory = rt.memory().allocate_zeroed(slow_message_bytes);
  for (int i = 0; i < rounds; ++i) {
    static_cast<void>(co_await conn.recv(memory));
    co_await cordma::sleep_for(5ms);
    co_await conn.send(memory);
  }
  co_await conn.ended();
}

task<> exchange(runtime& rt, cordma::endpoint to) {
  connection conn = co_await rt.connect(to);
  cordma::local_mr memory = rt.memory().allocate_zeroed(2 * slow_message_bytes);
  for (int i = 0; i < rounds; ++i) {
    conn.post_recv(memory.first(slow_message_bytes));
    co_await conn.send(memory.last(slow_message_bytes));
    static_cast<void>(co_await conn.next_message());
  }
  co_await conn.close();
}

/// The server's thread, with a runtime of its own.
void serve(const subject& s, io_backend backend, std::promise<std::uint16_t> port) {
  bool is_told = false;
  try {
    runtime rt{options_with(s, backend)};
    cordma::listener listener = rt.listen();
    port.set_value(listener.local_endpoint().port);
    is_told = true;
    rt.run(cordma::with_timeout(answer_slowly(rt, listener), deadline));
  } catch (...) {
    if (!is_told) port.set_exception(std::current_exception());
  }
}

/// Returns how often a completion woke the client's thread. \errors what runtimes throw.
std::uint64_t wake_ups(const subject& s, io_backend backend) {
  std::promise<std::uint16_t> promise;
  std::future<std::uint16_t> port = promise.get_future();
  const std::jthread there{&serve, std::cref(s), backend, std::move(promise)};
  runtime rt{options_with(s, backend)};
  const cordma::endpoint to{"127.0.0.1", port.get()};
  rt.run(cordma::with_timeout(exchange(rt, to), deadline));
  return rt.metrics().completions.wake_ups;
}

void try_reactor(const subject& s, io_backend backend, const char* name, report& r) {
  const std::string check = std::string{"try.event_mode."} + name;
  const std::string why = "in event mode a thread sleeps until a completion wakes it";
  try {
    const std::uint64_t count = wake_ups(s, backend);
    const std::string value = std::to_string(rounds) + " messages between two threads, " +
                              std::to_string(count) + " wake-ups";
    if (count > 0) {
      r.ok(check, value, why);
    } else {
      r.error(check, value, why,
              "the device raises no completion events: completion_mode::busy works without");
    }
  } catch (const std::exception& e) {
    r.error(check, e.what(), why,
            "see waiting and the other tries; completion_mode::busy needs no events");
  }
}

}  // namespace

void try_reactors(const subject& s, report& r) {
  if (!s.process.ring_failure) {
    try_reactor(s, io_backend::io_uring, "io_uring", r);
  } else {
    r.note("try.event_mode.io_uring", "not tried: io_uring is forbidden or missing here",
           "executors wait with epoll", "see waiting");
  }
  try_reactor(s, io_backend::epoll, "epoll", r);
}

}  // namespace doctor
