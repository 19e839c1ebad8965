#pragma once

#include "queue/adaptive_mutex.hpp"

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

/// Which entries a queue holds that raised no event since they came: none, unsolicited ones only,
/// or at least one that was solicited.
enum class unannounced : std::uint8_t { none, unsolicited, solicited };

/// `handle` is what the program holds, as ibv_cq or, when made by create_cq_ex, as ibv_cq_ex.
struct completion_queue {
  ibv_cq_ex handle{};  // First: pointers to it are cast back.
  context* owner = nullptr;
  completion_channel* channel = nullptr;
  std::atomic<std::uint32_t> users{0};  ///< QPs attached; destroy answers EBUSY

  adaptive_mutex mutex;
  std::vector<completion> ring;  ///< a power of two of entries
  /// When they came, in ns of CLOCK_REALTIME; empty: nobody asked for that.
  std::vector<std::uint64_t> timestamps;
  /// The ring uses this many slots, a power of two: enough for the most entries since the queue was
  /// empty. A deep queue with few entries at a time stays in the near caches.
  std::size_t slots = 1;   ///< under mutex
  std::uint64_t tail = 0;  ///< next to fill; under mutex
  /// Entries that polls may see. Written under mutex, read without: a poll's quick look.
  step_atomic<std::uint64_t> count{0};
  std::uint64_t hidden = 0;       ///< entries behind those: they came while `withheld`
  bool hidden_solicited = false;  ///< one of them was
  bool withheld = false;          ///< a fault (softverbs.h)
  armed arm = armed::no;
  unannounced silent = unannounced::none;  ///< says nothing while the queue is empty
  bool overrun = false;          ///< for good: no entry comes any more, those in it may be polled
  bool ignores_overrun = false;  ///< IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN: what does not fit is lost
  std::atomic<std::uint32_t> empty_polls{0};  ///< with work to do, since the last arm

  // Of the channel, under its mutex:
  std::uint32_t events_queued = 0;
  std::uint32_t events_taken = 0;  ///< given to the program by get_cq_event
  completion_queue* next_with_events = nullptr;

  // ibv_cq_ex: from a start_poll that found an entry to its end_poll.
  std::mutex polling;
  completion polled;
  std::uint64_t polled_timestamp = 0;
};

/// Queues IBV_EVENT_CQ_ERR; defined in object/, which knows contexts.
void raise_cq_error(completion_queue& cq) noexcept;

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

  /// Adds one, and an event when the queue is armed for it. False: the queue was full, now or
  /// before; it raises IBV_EVENT_CQ_ERR once, and the QP whose entry this was must go to ERR.
  bool push(const completion& entry, bool solicited) noexcept;

 private:
  completion_queue& cq_;
  bool is_first_loss_ = false;
};
/// The same of one.
bool push(completion_queue& cq, const completion& entry, bool solicited) noexcept;
/// The wider of two requests holds. Entries that came since the last event, while nobody had asked
/// for one, raise it now: else a program that arms and sleeps without another poll would miss them.
/// Those that an event told of do not: a program that arms before it polls would be told twice.
void arm(completion_queue& cq, armed how);
/// Takes up to `entries_max`; makes no progress (verb::poll_cq does that around it).
int take(completion_queue& cq, int entries_max, ibv_wc* entries);
/// Into `polled`.
bool take_one(completion_queue& cq);
/// Makes room for `cqe` entries. False: more are there.
bool resize(completion_queue& cq, int cqe);
/// Drops the entries of a queue pair that was reset.
void forget(completion_queue& cq, std::uint32_t qp_num);

/// A fault: entries that come from now on are kept back until release, which also brings the event
/// that they schedule_answer.
void withhold(completion_queue& cq);
void release_withheld(completion_queue& cq);

}  // namespace softverbs
