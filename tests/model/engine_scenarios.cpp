#include "explorations.hpp"

#include <mutex>

#include "link/engine_protocol.hpp"

namespace model {
namespace {

/// How a program waits for its completions.
enum class habit : std::uint8_t {
  arms,             ///< polls until the queue is empty, arms, polls once more, and sleeps
  polls_then_arms,  ///< polls so long that it takes the work over, then arms and sleeps
  polls_then_goes,  ///< polls so long, then waits for memory, without an arm
};

/// A node with one link and one completion queue, as node.cpp, link.cpp and completion_queue.cpp
/// have them. Each request on the link takes several quanta of answers; the last one completes
/// something for the program.
class one_link : public scenario, protected softverbs::engine_world {
 protected:
  explicit one_link(unsigned quanta_each) : quanta{quanta_each} {
    name(protocol, "protocol",
         {"polled_", "polls_seen_", "asleep_", "watching_", "stopping_", "duty_"});
    name(wake, "wake");
    name(tail, "link.tail");
    name(doorbell_wanted, "link.doorbell_wanted");
    name(head, "link.head");
    name(quantum_ended, "link.quantum_ended");
    name(rx, "link.rx");
    name(cq, "cq", {"mutex", "count", "is_armed", "channel"});
    name(memory, "memory");
    protocol.start();
  }

  // ---- the world
  bool work(bool waits) noexcept override {
    if (!has_more()) return false;
    bool did = false;
    {
      std::unique_lock lock{rx, std::defer_lock};
      if (waits)
        lock.lock();
      else if (!lock.try_lock())
        return false;
      did = serve_locked();
    }
    if (has_more()) protocol.notify();
    return did;
  }
  void want_doorbells(bool wanted) noexcept override { doorbell_wanted.store(wanted); }
  void wake_engine() noexcept override { wake.wake(); }
  void wait(std::chrono::nanoseconds limit) noexcept override {
    if (limit.count() < 0) return wake.wait();
    wake.try_wait();
    if (limit.count() > 0) model::yield();
  }
  void yield() noexcept override { model::yield(); }
  softverbs::clock::time_point now() noexcept override {
    // No two readings are closer than the engine's linger time and its first watch period.
    return time += std::chrono::microseconds{100};
  }

  [[nodiscard]] bool has_more() {
    return tail.load() != head.load(std::memory_order_relaxed) || quantum_ended.load();
  }
  /// Takes a request if one is there, and sends one quantum of answers.
  bool serve_locked() {
    if (answers_due == 0) {
      const unsigned taken = head.load(std::memory_order_relaxed);
      if (tail.load(std::memory_order_acquire) == taken) return false;
      head.store(taken + 1, std::memory_order_relaxed);
      answers_due = quanta;
    }
    answers_due = answers_due - 1;
    quantum_ended.store(answers_due != 0);
    if (answers_due == 0) complete();
    return true;
  }
  void complete() {
    {
      const std::lock_guard lock{cq.mutex};
      cq.count.store(cq.count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      if (cq.is_armed) raise();
    }
    memory.wake();
  }
  void raise() {
    cq.is_armed = false;
    cq.channel.wake();
  }

  // ---- the threads
  void send(unsigned requests) {
    for (unsigned n = 1; n <= requests; ++n) {
      tail.store(n);
      if (doorbell_wanted.load() && doorbell_wanted.exchange(false)) wake.wake();
    }
  }
  bool take() {
    if (cq.count.load(std::memory_order_acquire) == 0) return false;
    const std::lock_guard lock{cq.mutex};
    cq.count.store(cq.count.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    return true;
  }
  bool poll() {
    if (take()) return true;
    protocol.on_empty_poll(empty_polls, true);
    protocol.after_empty_poll(empty_polls, work(false));
    return take();
  }
  void arm() {
    {
      const std::lock_guard lock{cq.mutex};
      cq.is_armed = true;
      if (cq.count.load(std::memory_order_relaxed) != 0) raise();
    }
    protocol.on_arm(empty_polls);
  }
  void await(unsigned completions, habit how) {
    for (unsigned got = 0; got < completions;) {
      const unsigned polls = how == habit::arms ? 1 : softverbs::busy_polls + 1;
      bool has_taken = false;
      for (unsigned n = 0; n < polls && !has_taken; ++n) has_taken = poll();
      if (!has_taken && how == habit::polls_then_goes) {
        memory.wait();
      } else if (!has_taken) {
        arm();
        has_taken = poll();
        if (!has_taken) cq.channel.wait();
      }
      got += has_taken ? 1 : 0;
    }
    protocol.stop();
  }

  const unsigned quanta;  ///< that the answers to one request take
  softverbs::engine_protocol protocol{*this};
  event wake;  ///< the engine's descriptors
  softverbs::clock::time_point time{std::chrono::seconds{1}};
  atomic<unsigned> tail{0};
  atomic<bool> doorbell_wanted{true};
  atomic<unsigned> head{0};
  atomic<bool> quantum_ended{false};
  mutex rx;
  data<unsigned> answers_due;  ///< under rx
  struct queue {
    model::mutex mutex;
    atomic<unsigned> count{0};
    data<bool> is_armed;  ///< under the mutex
    event channel;
  } cq;
  watched memory;
  std::atomic<std::uint32_t> empty_polls{0};
};

/// The requests are there from the start.
template <habit How, unsigned Requests, unsigned Quanta>
struct engine_and_program : one_link {
  engine_and_program() : one_link{Quanta} { send(Requests); }
  void run(unsigned thread) override {
    if (thread == 0) return protocol.run();
    await(Requests, How);
  }
  void end() override {
    check(cq.count.load() == 0 && answers_due == 0, "all that was requested is done");
  }
};

/// A peer sends meanwhile.
template <habit How, unsigned Requests, unsigned Quanta>
struct engine_program_and_peer : one_link {
  engine_program_and_peer() : one_link{Quanta} {}
  void run(unsigned thread) override {
    if (thread == 0) return protocol.run();
    if (thread == 1) return await(Requests, How);
    send(Requests);
  }
};

}  // namespace

std::vector<exploration> explorations_of_engine() {
  const limits two{.threads = 2, .preemptions = 3, .stale_reads = 1};
  const limits two_long{.threads = 2, .preemptions = 2, .stale_reads = 1};
  const limits three{.threads = 3, .random_runs = 1};
  return {
      {"engine and a program in event mode", two, 200'000,
       explore<engine_and_program<habit::arms, 1, 4>>},
      {"engine and a program that polls, then sleeps", two_long, 30'000,
       explore<engine_and_program<habit::polls_then_arms, 3, 2>>},
      {"engine and a program that polls, then watches memory", two_long, 30'000,
       explore<engine_and_program<habit::polls_then_goes, 3, 2>>},
      {"engine, a program in event mode and a peer", three, 0,
       explore<engine_program_and_peer<habit::arms, 2, 4>>},
      {"engine, a program that polls, then sleeps, and a peer", three, 0,
       explore<engine_program_and_peer<habit::polls_then_arms, 3, 2>>},
      {"engine, a program that polls, then watches memory, and a peer", three, 0,
       explore<engine_program_and_peer<habit::polls_then_goes, 3, 2>>},
  };
}

}  // namespace model
