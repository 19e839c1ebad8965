#pragma once

#include "counters.hpp"
#include "device_choice.hpp"
#include "job.hpp"
#include "link.hpp"
#include "meter.hpp"
#include "methods.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/runtime/runtime_group.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace perf {

/// The measurements of all the client's threads together.
struct measured {
  histogram latencies;
  counters cost;
  double seconds = 0;  ///< From the first operation's begin to the last one's end.
  std::uint64_t warm_up_operations = 0;
  // An open loop also has:
  histogram lateness;        ///< Between an operation's due time and its begin.
  std::uint64_t missed = 0;  ///< Due before the end, and never begun.
};

/// The unit of the bytes that move in a second.
enum class speed_unit : std::uint8_t { gigabytes, gigabits };

/// The client's side of all jobs.
struct client_options {
  device_choice device{};
  std::vector<unsigned> pin{};  ///< CPUs of the threads; empty: any.
  /// Ends endless jobs; null: nothing does.
  const std::atomic<bool>* is_stopped = nullptr;
  /// Time between two lines about a job that runs; none: no such lines.
  std::optional<std::chrono::milliseconds> report_every{};
  speed_unit unit = speed_unit::gigabytes;
};

/// The client's threads: each connects, waits for `go`, warms up, measures and closes. Whoever
/// looks after them belongs to another executor, `executor`, which is never blocked. \thread
/// `executor`'s.
class load {
 public:
  load(cordma::executor& executor, const job& what, const client_options& options,
       cordma::endpoint server);
  load(const load&) = delete;
  load& operator=(const load&) = delete;
  ~load();

  /// Ends when all threads have connected, or have all ended, since one of them failed.
  auto connected() noexcept { return connected_.wait(); }
  /// The server is ready: the threads begin.
  void go(std::vector<remote_end> remote_ends);
  /// Ends the threads early.
  void stop() noexcept { threads_.stop(); }
  /// Ends when all threads have ended. To be awaited before this goes.
  auto ended() noexcept { return ended_.wait(); }
  [[nodiscard]] bool has_ended() const noexcept { return ended_.is_set(); }
  /// \errors what the first thread that failed threw.
  void check() const;
  [[nodiscard]] measured result() const;
  /// Operations so far.
  [[nodiscard]] std::uint64_t done() const noexcept;
  /// Tells whether all threads have warmed up.
  [[nodiscard]] bool is_measuring() const noexcept;
  /// Latencies so far, while the threads go on.
  [[nodiscard]] histogram snapshot() const;

 private:
  struct seat;
  cordma::task<> live(cordma::runtime& rt, unsigned index);
  cordma::task<> measure(cordma::runtime& rt, seat& here,
                         const std::vector<std::unique_ptr<link>>& links);
  [[nodiscard]] std::uint32_t connections_of(unsigned index) const noexcept;
  void one_connected();

  cordma::executor& executor_;
  const job what_;
  const cordma::endpoint server_;
  const std::atomic<bool>* const is_stopped_;
  cordma::event connected_, ended_;
  std::uint32_t connected_count_ = 0;
  std::vector<remote_end> remote_ends_;  ///< Written before `go` is told to the threads.
  std::vector<std::unique_ptr<seat>> seats_;
  std::exception_ptr why_;  ///< Written before `ended_` is posted.
  cordma::runtime_group threads_;
  std::jthread runner_;  ///< Blocks, in place of `executor`, until the threads have ended.
};

}  // namespace perf
