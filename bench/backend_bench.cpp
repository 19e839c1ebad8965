// Compares what waits for file descriptors: epoll, beside io_uring, which waits where it may.

#include "support/rounds.hpp"
#include "support/rpc_serving.hpp"
#include "support/second_thread.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/messages/message_stream.hpp>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace {

using bench::echo;
using bench::echo_bytes;
using cordma::completion_mode;
using cordma::io_backend;
using cordma::task;

constexpr int rounds = 41;

cordma::runtime_options options_of(completion_mode mode, io_backend backend) {
  cordma::runtime_options o{.device = cordma::test::device_name(), .cq = {.mode = mode}};
  o.executor.backend = backend;
  return o;
}

/// A server that sends back what comes, by each kind of message. It lives on the other thread.
class answering {
 public:
  answering(completion_mode mode, io_backend backend, const cordma::endpoint& caller)
      : rt{options_of(mode, backend)},
        buffers_{rt.memory().allocate_zeroed(2 * echo_bytes)},
        plain_{rt.run(rt.connect(caller))},
        stream_{rt.run(rt.connect(caller))} {
    plain_.post_recv(buffers_.slice(0, echo_bytes));
    calls_.handle<echo>(&bench::echo_back);
    work_.spawn(return_sends());
    work_.spawn(return_messages());
    work_.spawn(calls_.serve(rt.run(rt.connect(caller))));
  }
  ~answering() {
    work_.request_stop();
    rt.run(work_.join());
  }
  /// Serves until `end`, which the other thread calls.
  void serve() {
    is_over_.reset();
    rt.run(is_over_.wait());
  }
  void end() {
    rt.executor().post([this]() noexcept { is_over_.set(); });
  }

  cordma::runtime rt;

 private:
  task<> return_sends() {
    for (std::size_t n = 1;; ++n) {
      const cordma::message came = co_await plain_.next_message();
      // The caller may send again before this side's send has ended.
      plain_.post_recv(buffers_.slice(n % 2 * echo_bytes, echo_bytes));
      co_await plain_.send(came.payload());
    }
  }
  task<> return_messages() {
    for (;;) {
      const cordma::stream_message came = co_await stream_.receive();
      co_await stream_.send(came.bytes());
    }
  }

  cordma::local_mr buffers_;
  cordma::connection plain_;
  cordma::message_stream stream_;
  cordma::rpc::server calls_;
  cordma::event is_over_;
  cordma::scope work_{rt.executor()};
};

/// Two ends, with a thread each, in one mode and on one backend.
class both_ends {
 public:
  both_ends(bench::second_thread& other, completion_mode mode, io_backend backend)
      : other_{other},
        rt_{options_of(mode, backend)},
        buffer_{rt_.memory().allocate_zeroed(echo_bytes)} {
    cordma::listener acceptor = rt_.listen();
    const cordma::endpoint here = acceptor.local_endpoint();
    const std::function<void()> begin = [&] { server_.emplace(mode, backend, here); };
    other_.start(&begin);
    plain_ = rt_.run(acceptor.accept());
    stream_ = cordma::message_stream{rt_.run(acceptor.accept())};
    calls_ = cordma::rpc::client{rt_.run(acceptor.accept())};
    other_.wait();
  }
  ~both_ends() {
    const std::function<void()> end = [this] { server_.reset(); };
    other_.start(&end);
    other_.wait();
  }
  void sends(std::uint64_t n) { run(send_each(n)); }
  void messages(std::uint64_t n) { run(message_each(n)); }
  void calls(std::uint64_t n) { run(call_each(n)); }

 private:
  void run(task<> work) {
    const std::function<void()> serve = [this] { server_->serve(); };
    other_.start(&serve);
    rt_.run(std::move(work));
    server_->end();
    other_.wait();
  }
  task<> send_each(std::uint64_t n) {
    for (; n > 0; --n) {
      plain_.post_recv(buffer_);
      co_await plain_.send(buffer_.slice());
      static_cast<void>(co_await plain_.next_message());
    }
  }
  task<> message_each(std::uint64_t n) {
    for (; n > 0; --n) {
      co_await stream_.send(bytes_);
      static_cast<void>(co_await stream_.receive());
    }
  }
  task<> call_each(std::uint64_t n) {
    for (; n > 0; --n) static_cast<void>(co_await calls_.call<echo>(bytes_));
  }

  bench::second_thread& other_;
  cordma::runtime rt_;
  cordma::local_mr buffer_;
  std::array<std::byte, echo_bytes> bytes_{};
  cordma::connection plain_;
  cordma::message_stream stream_;
  cordma::rpc::client calls_;
  std::optional<answering> server_;
};

void compare(bench::recorder& recorder, const std::string& name, completion_mode mode,
             std::uint64_t n) {
  bench::second_thread other;
  both_ends ring{other, mode, io_backend::io_uring}, epoll{other, mode, io_backend::epoll};
  using work = void (both_ends::*)(std::uint64_t);
  for (const auto& [what, does] : {std::pair<const char*, work>{"SEND", &both_ends::sends},
                                   std::pair<const char*, work>{"stream", &both_ends::messages},
                                   std::pair<const char*, work>{"RPC", &both_ends::calls}}) {
    bench::compare_rounds(
        recorder, name + ", " + what, n, rounds, [&](std::uint64_t m) { (ring.*does)(m); },
        [&](std::uint64_t m) { (epoll.*does)(m); });
  }
}

}  // namespace

BENCH_ON_DEVICE("backend/echo", "32 bytes there and back: what does epoll cost beside io_uring?") {
  if (std::thread::hardware_concurrency() < 2) return;
  const bench::pinned here{0};
  compare(recorder, "event", completion_mode::event, 200);
  compare(recorder, "busy", completion_mode::busy, 2000);
  compare(recorder, "adaptive", completion_mode::adaptive, 2000);
}
