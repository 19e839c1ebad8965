#pragma once

#include "queue/adaptive_mutex.hpp"
#include "queue/queue_array.hpp"

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace softverbs {

struct completion_channel;
struct context;

/// A CQE, and the send WQEs that a poll of it frees. One cache line.
struct alignas(64) completion {
  ibv_wc wc{};
  std::atomic<std::uint64_t>* released = nullptr;  ///< polling stores `release_to` there
  std::uint64_t release_to = 0;
};
static_assert(sizeof(completion) == 64);

enum class armed : std::uint8_t { no, solicited, any };

/// The entries that no event has announced: none, unsolicited ones only, or at least one solicited.
enum class unannounced : std::uint8_t { none, unsolicited, solicited };

/// A completion queue. The program holds `handle`, as ibv_cq or (create_cq_ex) as ibv_cq_ex.
struct completion_queue {
  ibv_cq_ex handle{};  // First: pointers to it are cast back.
  context* owner = nullptr;
  completion_channel* channel = nullptr;
  ibv_pd* domain = nullptr;             ///< the parent domain that it was made in, if any
  std::atomic<std::uint32_t> users{0};  ///< QPs attached; destroy answers EBUSY

  adaptive_mutex mutex;
  const domain_memory* memory = nullptr;  ///< the memory of `ring`; null: default memory
  queue_array<completion> ring;           ///< a power of two of entries
  /// The times of the entries, in ns of CLOCK_REALTIME; empty unless the program requested them.
  std::vector<std::uint64_t> timestamps;
  /// The ring uses this many slots, a power of two: enough for the most entries since the queue was
  /// empty. A deep queue with few entries at a time stays in the near caches.
  std::size_t slots = 1;   ///< under mutex
  std::uint64_t tail = 0;  ///< next to fill; under mutex
  /// The number of entries visible to polls. Written under the mutex; a poll reads it without.
  step_atomic<std::uint64_t> count{0};
  std::uint64_t hidden = 0;       ///< later entries, which came while `withheld`
  bool hidden_solicited = false;  ///< at least one hidden entry is solicited
  bool withheld = false;          ///< a fault (softverbs.h)
  armed arm = armed::no;
  unannounced silent = unannounced::none;  ///< meaningless while the queue is empty
  bool overrun = false;  ///< permanent: no entry is added any more; the present ones can be polled
  bool ignores_overrun = false;  ///< IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN: excess entries are lost
  std::atomic<std::uint32_t> empty_polls{0};  ///< with work to do, since the last arm

  // Used by the channel, under the mutex of the channel.
  std::uint32_t events_queued = 0;
  std::uint32_t events_taken = 0;  ///< given to the program by get_cq_event
  completion_queue* next_with_events = nullptr;

  // ibv_cq_ex: held from a successful start_poll to end_poll.
  std::mutex polling;
  completion polled;
  std::uint64_t polled_timestamp = 0;
};

/// Queues IBV_EVENT_CQ_ERR; defined in object/, which knows contexts.
void raise_cq_error(completion_queue& cq) noexcept;

/// Returns nanoseconds since 1970, or of a simulation: the clock of timestamps.
[[nodiscard]] std::uint64_t completion_timestamp() noexcept;

/// Adds entries under one lock of the queue.
class completion_writer {
 public:
  explicit completion_writer(completion_queue& cq) noexcept : cq_{cq} { cq.mutex.lock(); }
  completion_writer(const completion_writer&) = delete;
  completion_writer& operator=(const completion_writer&) = delete;
  ~completion_writer() {
    cq_.mutex.unlock();
    if (is_first_loss_) raise_cq_error(cq_);
  }

  /// Adds an entry, and an event if the queue is armed for it. False: the queue is or was full; it
  /// raises IBV_EVENT_CQ_ERR once, and the QP of the entry must go to ERR.
  bool push(const completion& cqe, bool solicited) noexcept;

 private:
  completion_queue& cq_;
  bool is_first_loss_ = false;
};
/// Adds one entry.
bool push(completion_queue& cq, const completion& cqe, bool solicited) noexcept;
/// Arms the queue; the wider of two requests holds. Entries that no event has announced raise the
/// event now: a program may arm and sleep without another poll. Announced entries raise none: a
/// program may arm before it polls.
void arm(completion_queue& cq, armed how);
/// Arms the queue as IBTA has it: only entries that come afterwards raise an event.
void arm_for_later(completion_queue& cq, armed how);
/// Takes up to `cqes_max` entries. Makes no progress; verb::poll_cq does.
int take(completion_queue& cq, int cqes_max, ibv_wc* cqes);
/// Takes one entry into `polled`.
bool take_one(completion_queue& cq);
/// Resizes the queue to `cqe` entries. False: it holds more.
bool resize(completion_queue& cq, int cqe);
/// Drops the entries of a queue pair that was reset.
void forget(completion_queue& cq, std::uint32_t qp_num);

/// A fault: hides new entries until release_withheld(), which also raises their event.
void withhold(completion_queue& cq);
void release_withheld(completion_queue& cq);

}  // namespace softverbs
