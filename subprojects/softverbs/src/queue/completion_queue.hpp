#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace softverbs {

struct completion_channel;
struct context;

/// What a completion queue keeps: the entry, when it came, and which place of a send queue polling
/// it frees.
struct completion {
  ibv_wc wc;
  std::uint64_t timestamp_ns;  ///< CLOCK_REALTIME, filled by push() when the CQ asked for it
  std::atomic<std::uint64_t>* released = nullptr;  ///< polling stores `release_to` there
  std::uint64_t release_to = 0;
};

enum class armed : std::uint8_t { no, solicited, any };

/// `handle` is what the program holds, as ibv_cq or, when made by create_cq_ex, as ibv_cq_ex.
struct completion_queue {
  ibv_cq_ex handle;  // First: pointers to it are cast back.
  context* owner;
  std::atomic<std::uint32_t> users{0};  ///< QPs attached; destroy answers EBUSY

  std::mutex mutex;
  std::vector<completion> ring;         ///< capacity() entries
  std::uint64_t tail = 0;               ///< next to fill; under mutex
  std::atomic<std::uint64_t> count{0};  ///< written under mutex, read without: a poll's quick look
  armed arm = armed::no;
  bool overrun = false;
  std::uint32_t channel_events =
      0;  ///< given to the program by get_cq_event, guarded by the channel's mutex
  std::atomic<std::uint32_t> empty_polls{0};  ///< in a row, since the last arm
  completion polled;  ///< create_cq_ex: the entry between start_poll/next_poll and the next

  // softverbs_withhold_completions(): while `withheld`, push() only appends here. Under mutex.
  struct held {
    completion entry;
    bool solicited;
  };
  bool withheld = false;
  std::vector<held> held_back;
};

/// Adds an entry, and an event when the queue is armed for it. False: the queue is full; it then
/// raises IBV_EVENT_CQ_ERR once, and the QP whose entry this was must go to ERR.
bool push(completion_queue& cq, completion entry, bool solicited);
/// The same with the mutex held, and whether or not completions are withheld.
bool push_locked(completion_queue& cq, completion entry, bool solicited);
/// Takes up to `entries_max`; no progress is made here (the ABI's poll_cq does that around it).
int take(completion_queue& cq, int entries_max, ibv_wc* entries);

}  // namespace softverbs
