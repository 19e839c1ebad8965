#pragma once

#include "rig.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

/// Pairs of queue pairs that many threads use at once: clients ask, servers answer. A client and
/// its server may be in one process or in two.
namespace stress {

// A wr_id holds a pair, a slot (a receive's: of its buffer) and an epoch. By its epoch, a CQE that
// an older queue pair left in the completion queue is known.
constexpr int pair_shift = 48;
constexpr int slot_shift = 40;
constexpr std::uint64_t epoch_mask = (1ull << slot_shift) - 1;

inline constexpr std::uint32_t ops = 8;  ///< slots of a client: requests in flight
inline constexpr std::uint32_t message_bytes = 4096;
inline constexpr std::uint32_t large_bytes = 80 * 1024;  ///< the last slot's: three segments
inline constexpr std::uint32_t receives = 2 * ops;

constexpr std::uint32_t slot_bytes(std::uint32_t slot) {
  return slot + 1 == ops ? large_bytes : message_bytes;
}
constexpr std::size_t slot_at(std::uint32_t slot) {
  return static_cast<std::size_t>(slot) * message_bytes;
}
/// A server grants a slot of memory for each slot of its client, and a word each for atomics.
/// Behind them lie the rkey and the address of a region that comes and goes.
inline constexpr std::size_t words_at = slot_at(ops - 1) + large_bytes;
inline constexpr std::size_t fickle_rkey_at = words_at + ops * 8;
inline constexpr std::size_t server_bytes = fickle_rkey_at + 64;

/// The first failure of any thread ends all of them.
class verdict {
 public:
  void fail(const std::string& what);
  [[nodiscard]] bool over() const noexcept { return over_.load(std::memory_order_relaxed); }
  void finish() noexcept { over_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] std::string text();  ///< empty: nothing failed

 private:
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  std::string text_;
};

/// The order to a server to begin a pair anew; the answer is the new server's card.
struct rebuild_order {
  std::uint32_t pair = 0;
  rig::card client{};
  std::uint64_t sent = 0;  ///< messages of the old queue pair that were delivered...
  bool exact = false;      ///< ...and no others can have been
};

/// Reads and acknowledges asynchronous events, which failed queue pairs raise, until destroyed.
class event_reader {
 public:
  explicit event_reader(const rig::device& dev);
  ~event_reader();

 private:
  int stop_;
  std::thread thread_;
};

/// The server ends of `pairs` pairs. \thread any, for all members.
class server {
 public:
  server(const rig::device& dev, std::uint32_t pairs, std::uint32_t queues, verdict& v);
  ~server();
  rig::card rebuild(const rebuild_order& order);
  /// Reaps receives of one of its completion queues, checks the messages, posts the buffers again.
  void serve(std::uint32_t queue);
  /// Registers and deregisters the fickle regions, one step.
  void churn(std::mt19937_64& random);
  [[nodiscard]] std::uint64_t messages() const noexcept { return messages_; }

 private:
  struct end {
    std::mutex mutex;
    std::vector<std::byte> memory = std::vector<std::byte>(server_bytes);
    std::vector<std::byte> buffers = std::vector<std::byte>(receives * message_bytes);
    std::vector<std::byte> fickle = std::vector<std::byte>(message_bytes);
    rig::mr_ptr memory_mr, buffers_mr, fickle_mr;
    rig::qp_ptr qp;
    std::uint64_t epoch = 0;
    std::uint64_t received = 0;  ///< messages of this epoch
  };
  void take(const ibv_wc& wc);
  void publish_fickle(end& e) noexcept;

  const rig::device& device_;
  verdict& verdict_;
  std::vector<rig::cq_ptr> cqs_;
  rig::cq_ptr unused_cq_;  ///< for the sends that servers do not make
  std::deque<end> ends_;
  std::atomic<std::uint64_t> messages_{0};
};

/// The client ends. `rebuild` reaches the server, wherever it is. \thread any, for all members.
class client {
 public:
  using rebuild_type = std::function<rig::card(const rebuild_order&)>;
  client(const rig::device& dev, std::uint32_t pairs, std::uint32_t queues, verdict& v,
         rebuild_type rebuild);
  void connect_all();
  /// Uses a random pair in a random way. `meanwhile` is called while it waits.
  void run_operation(std::mt19937_64& random, const std::function<void()>& meanwhile);
  [[nodiscard]] std::uint64_t operations() const noexcept { return operations_; }
  [[nodiscard]] std::uint64_t rebuilds() const noexcept { return rebuilds_; }

 private:
  /// A slot's state: epoch << 8 | one of slot_free ... or slot_done + status.
  using slot_word = std::atomic<std::uint64_t>;
  struct end {
    std::shared_mutex mutex;  ///< shared: uses the queue pair; exclusive: makes a new one
    std::vector<std::byte> source = std::vector<std::byte>(words_at);
    std::vector<std::byte> sink = std::vector<std::byte>(words_at);
    rig::mr_ptr source_mr, sink_mr;
    rig::qp_ptr qp;
    ibv_cq* cq = nullptr;
    rig::card peer;
    std::atomic<std::uint64_t> epoch{0};
    std::array<slot_word, ops> slots{};
    std::array<std::uint64_t, ops> words{};  ///< the server's atomic words; the slot's owner's
    std::atomic<std::uint64_t> delivered{0};
    std::atomic<bool> may_fail{false};   ///< the queue pair may go down by what a thread does
    std::atomic<bool> broken{false};     ///< the queue pair needs a new beginning
    std::atomic<bool> uncertain{false};  ///< a send's end is not known
  };
  struct use;  ///< the state of one operation

  void dispatch(ibv_cq* cq);
  void rebuild(std::uint32_t pair, std::mt19937_64& random);
  void revive(std::uint32_t pair, std::mt19937_64& random, const std::function<void()>& meanwhile);
  bool take_slot(end& e, std::uint32_t slot);
  ibv_wc_status await(end& e, std::uint32_t slot, const std::function<void()>& meanwhile);
  void send_burst(use& u);
  void write_and_read(use& u);
  void atomics(use& u);
  void write_fickle(use& u);
  void fall(use& u);
  void drain(use& u);
  void expect_success(ibv_wc_status status, end& e, const char* what);

  const rig::device& device_;
  verdict& verdict_;
  rebuild_type rebuild_;
  std::vector<rig::cq_ptr> cqs_;
  std::deque<end> ends_;
  std::atomic<std::uint64_t> operations_{0};
  std::atomic<std::uint64_t> rebuilds_{0};
};

}  // namespace stress
