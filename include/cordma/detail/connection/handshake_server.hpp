#pragma once

#include <cordma/base/time.hpp>
#include <cordma/coro/channel.hpp>
#include <cordma/coro/scope.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/detail/connection/bootstrap.hpp>
#include <cordma/io/executor.hpp>

#include <chrono>
#include <cstdint>
#include <optional>

namespace cordma {

struct listener_options {
  /// Handshakes in progress at once; 1 to `handshakes_limit`. Further clients wait in the kernel.
  unsigned handshakes_max = 64;
  /// Deadline of one handshake; a slower client is refused.
  time_span handshake_timeout = std::chrono::seconds{5};
  /// Ready connections that nobody has accepted yet; 1 to `ready_limit`.
  unsigned ready_max = 128;
  int tcp_backlog = 128;

  static constexpr unsigned handshakes_limit = 4096;
  static constexpr unsigned ready_limit = 65536;
};

/// \errors errc::limit_exceeded: names the value and its limit.
void check(const listener_options& options);

struct listener_counters {
  std::uint64_t completed = 0;      ///< Handshakes that succeeded.
  std::uint64_t rejected = 0;       ///< Handshakes that failed.
  std::uint64_t accept_errors = 0;  ///< Failures of accept(2): mostly no descriptor was left.
};

/// Accepts TCP connections and runs their handshakes side by side, each with its own deadline. The
/// products wait until they are accepted. An error of one client ends its own handshake and nothing
/// else. `Product` is default-constructible and movable. \thread the executor's.
template <class Product>
class handshake_server {
 public:
  /// Pause after a failure of accept(2), which would fail again at once.
  static constexpr std::chrono::milliseconds accept_pause{50};

  handshake_server(cordma::executor& executor, const socket_address& local,
                   const listener_options& options)
      : tcp_{(check(options), executor), local, options.tcp_backlog},
        local_{tcp_.local_address()},
        handshake_timeout_{options.handshake_timeout},
        slots_{options.handshakes_max},
        ready_{options.ready_max},
        tasks_{executor} {}
  handshake_server(const handshake_server&) = delete;
  handshake_server& operator=(const handshake_server&) = delete;
  virtual ~handshake_server() = default;

  void start() { tasks_.spawn(accept_loop()); }
  /// Ends waits for a connection, frees the port so that clients are refused, and stops the
  /// handshakes in progress. Idempotent.
  void close() noexcept {
    ready_.close();
    tasks_.request_stop();
    tcp_.close();
  }
  /// Waits until nothing runs. Call it after `close`, and before destruction.
  scope::join_op join() noexcept { return tasks_.join(); }

  /// Gives the next ready product; nothing once the server is closed and all are taken.
  auto accept() noexcept { return ready_.receive(); }

  [[nodiscard]] const socket_address& local_address() const noexcept { return local_; }
  [[nodiscard]] const listener_counters& counters() const noexcept { return counters_; }
  /// Returns why the last rejected client was rejected.
  [[nodiscard]] const std::optional<failure>& last_rejection() const noexcept {
    return last_rejection_;
  }

 protected:
  /// Runs the whole handshake, within the deadline. The override may move the stream into the
  /// product as its last step. \errors `error` when the handshake fails: the client is told why.
  virtual task<Product> shake_hands(tcp_stream& stream) = 0;

 private:
  task<> accept_loop() {
    for (;;) {
      co_await slots_.acquire();
      result<tcp_stream> stream = co_await as_result(tcp_.accept());
      if (stream.is_cancelled()) co_return;
      if (stream.has_value() && begin(std::move(*stream))) continue;
      ++counters_.accept_errors;
      slots_.release();
      co_await sleep_for(accept_pause);
    }
  }

  bool begin(tcp_stream stream) {
    try {
      tasks_.spawn(serve(std::move(stream)));
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  task<> serve(tcp_stream stream) {
    result<Product> made = failure{};
    try {
      made = co_await as_result(with_timeout(shake_hands(stream), handshake_timeout_));
      // A task may throw exceptions that are not cordma's: bad_alloc.
    } catch (const std::exception& e) {
      made = failure{.code = errc::refused, .call = "handshake", .detail = e.what()};
    }
    if (made.has_value()) {
      ++counters_.completed;
      // If the server was closed meanwhile, the product is dropped.
      static_cast<void>(co_await as_result(ready_.send(std::move(*made))));
    } else if (made.has_failure()) {
      ++counters_.rejected;
      last_rejection_ = bootstrap::name_timeout(made.failure(), "handshake", handshake_timeout_);
      try {
        co_await bootstrap::refuse(stream, *last_rejection_);
      } catch (const std::exception&) {
        // After a stop, or without memory, the client finds the stream closed.
      }
    }
    slots_.release();
  }

  tcp_listener tcp_;
  const socket_address local_;
  time_span handshake_timeout_;
  semaphore slots_;
  listener_counters counters_;
  std::optional<failure> last_rejection_;
  channel<Product> ready_;
  scope tasks_;
};

}  // namespace cordma
