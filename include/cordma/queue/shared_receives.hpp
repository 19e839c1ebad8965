#pragma once

#include <cordma/coro/event.hpp>
#include <cordma/coro/scheduler.hpp>
#include <cordma/coro/semaphore.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/detail/base/counter.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/detail/queue/receive_share.hpp>
#include <cordma/memory/mr_allocator.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace cordma {

class completion_queue_driver;
struct request_outcome;

struct shared_receives_options {
  /// Receive buffers of all queue pairs together. Each completion queue that has one of the queue
  /// pairs needs as many CQEs.
  std::uint32_t buffers = 1024;
  std::size_t buffer_bytes = 4096;  ///< Size of one buffer; a longer message breaks its queue pair.
  /// Buffers that each queue pair is sure of from its construction. The pool therefore serves at
  /// most `buffers` / `share_min` queue pairs.
  std::uint32_t share_min = 8;
  /// Connections' own messages, of all of them, go to `shared_receives::next_message`. Streams and
  /// calls cannot use such a pool. Each message takes the next buffer there is, whoever sent it:
  /// nothing is promised, and `share_min` says nothing.
  bool for_messages = false;
  /// XRC: the pool is a receive queue of this domain (`runtime::open_xrc_domain`), for messages. It
  /// gets those whose senders name its `num`, by targets of any process that shares the domain.
  verbs::xrc_domain* xrc_domain = nullptr;
};

/// Pool of receive buffers in one registered block, which many queue pairs use through a shared
/// receive queue. An idle queue pair needs `share_min` buffers.
///
/// Credits bind the peers of streams (`receive_share`). The first message beyond a peer's credit
/// breaks its queue pair and frees the buffer at once. Until then other peers may have to retry.
/// Plain messages (`shared_receives_options::for_messages`) have no credits: while the stock is
/// empty, senders over RC retry (`connection_options::rnr_retry`), and over UC messages are lost.
///
/// The pool outlives its queue pairs and the owners of their messages.
/// \thread the executor's.
/// \cost a message costs what a receive of a queue pair's own costs, and a lookup of the queue pair
///   by number.
class CORDMA_EXPORT shared_receives : private timer {
 public:
  static constexpr std::uint32_t buffers_max = 1u << 20;
  static constexpr std::size_t buffer_bytes_max = std::size_t{1} << 30;
  /// How long a share that was asked to shrink may take before the pool asks the next one. A peer
  /// that does not answer thus does not block the others.
  static constexpr std::chrono::milliseconds ask_interval{10};

  /// \param driver  reaps the messages of a pool in an XRC domain, and outlives it; else unused.
  /// \errors errc::not_supported: the device has no shared receive queues, or no XRC; a pool in a
  ///   domain is not `for_messages`. errc::limit_exceeded: an option is out of range, or `driver`
  ///   lacks room; the message gives the limits. The constructor also throws what the allocator,
  ///   which uses `pd`, throws.
  shared_receives(verbs::protection_domain& pd, mr_allocator& memory,
                  const shared_receives_options& options = {},
                  completion_queue_driver* driver = nullptr);
  shared_receives(const shared_receives&) = delete;
  shared_receives& operator=(const shared_receives&) = delete;
  ~shared_receives();

  [[nodiscard]] std::uint32_t buffers() const noexcept { return options_.buffers; }
  [[nodiscard]] std::size_t buffer_bytes() const noexcept { return options_.buffer_bytes; }
  [[nodiscard]] std::uint32_t share_min() const noexcept { return options_.share_min; }
  /// Returns the distance between the starts of adjacent buffers.
  [[nodiscard]] std::size_t stride_bytes() const noexcept { return stride_; }
  /// Returns the size of the pool's registered memory.
  [[nodiscard]] std::size_t memory_bytes() const noexcept { return memory_.size_bytes(); }
  /// Returns the promised buffers: the credit of queue pairs, and unreturned buffers of destroyed
  /// ones.
  [[nodiscard]] std::uint32_t promised() const noexcept { return promised_; }
  [[nodiscard]] std::uint32_t queue_pairs() const noexcept { return shares_; }

  [[nodiscard]] std::span<std::byte> bytes(std::uint32_t number) noexcept {
    return memory_.bytes().subspan(number * stride_, options_.buffer_bytes);
  }
  /// Returns a part of a buffer as registered memory. \errors errc::out_of_range.
  [[nodiscard]] const_local_mr_slice slice(std::uint32_t number, std::size_t offset,
                                           std::size_t length) const {
    return memory_.slice(number * stride_, options_.buffer_bytes).slice(offset, length);
  }
  class message;
  /// Gives the next message of any connection, in the order of their completions. A stopped wait
  /// loses nothing. The wait does not end with a connection: others may come.
  /// \errors errc::not_supported: the pool is not `for_messages`. errc::cq_overrun,
  ///   errc::device_failed, or an errno of the verbs: a pool in an XRC domain gets no more
  ///   messages.
  [[nodiscard]] task<message> next_message();
  /// A message of any connection, before its bytes are taken. The members are `message`'s.
  struct arrival {
    std::uint32_t qpn = 0;
    std::size_t size_bytes = 0;
    std::optional<std::uint32_t> immediate{};
    bool is_write = false;
  };
  /// Copies the next message of any connection into memory that `where` gives for it, and returns
  /// its buffer at once. The memory has room for `size_bytes`, and is of the pool's domain. Tasks
  /// are served in the order in which they asked, be it here or by `next_message`.
  ///
  /// A WRITE with immediate data needs no memory: `where` is not called. After an exception of
  /// `where`, and after memory that does not fit, the message stays for the next task that asks.
  /// \errors as `next_message`; what `where` throws. errc::wrong_length: too little room; both
  ///   numbers are named. errc::stale_slice; errc::wrong_protection_domain; errc::access_denied: no
  ///   local_write.
  template <class Where>
    requires(std::is_invocable_r_v<local_mr_slice, Where&, const arrival&>)
  [[nodiscard]] task<arrival> next_message_into(Where where);
  /// Ends when the device has fewer than `limit` of the buffers (IBTA 10.2.9.2), which it tells
  /// once for each call. Ends at once if they are fewer already. A later call replaces the limit of
  /// one that still waits; both end.
  /// \errors errc::limit_exceeded: `limit` is not between 1 and `buffers`. An errno of
  ///   ibv_modify_srq(3).
  [[nodiscard]] task<> runs_low(std::uint32_t limit);
  [[nodiscard]] bool is_for_messages() const noexcept { return options_.for_messages; }
  /// Returns the number that XRC initiators name (`connection::to`); 0: the pool is in no domain.
  [[nodiscard]] std::uint32_t num() const noexcept { return queue_.num(); }

  /// Returns a message's buffer, once; the next message of any queue pair may use it. If the device
  /// refuses the buffer, the buffer's queue pair breaks. The queue pair may be gone.
  void give_back(std::uint32_t number) noexcept;

  [[nodiscard]] verbs::shared_receive_queue& verbs() noexcept { return queue_; }
  [[nodiscard]] const ibv_pd* pd() const noexcept { return pd_.native_handle(); }

  /// Returns the receives posted so far. Completions are counted per queue pair, except for
  /// receives lost when the queue was recreated (`withdrawn`). \thread any.
  [[nodiscard]] std::uint64_t posted() const noexcept { return posted_.value(); }
  [[nodiscard]] std::uint64_t withdrawn() const noexcept { return withdrawn_.value(); }

  // The queue pair, or the driver of a pool in a domain, calls the following functions.
  /// Handles a CQE of a pool in an XRC domain; `number` is the buffer's.
  void complete(std::uint32_t number, const ibv_wc& wc) noexcept;
  /// Ends all waits of a pool in an XRC domain, whose completion queue has failed for `why`.
  void fail(const request_outcome& why) noexcept;
  /// Returns a buffer whose receive completed without a message for anybody.
  void put_back(std::uint32_t number) noexcept;
  /// Keeps a message, whose buffer its share has taken, for `next_message`.
  void deliver(receive_share& of, std::uint32_t number, const ibv_wc& wc) noexcept;
  /// Handles IBV_EVENT_SRQ_LIMIT_REACHED.
  void limit_reached() noexcept;

 private:
  friend class receive_share;
  using holder = detail::receive_holder;

  using arrived_list = detail::arrived_list;

  /// A message that nobody has taken, by the number of its buffer.
  struct arrived {
    std::uint32_t qpn;
    std::uint32_t size_bytes;
    std::optional<std::uint32_t> immediate;
    bool is_write;
    std::uint32_t next;  ///< buffer of the message after it
  };

  [[nodiscard]] std::optional<message> take_oldest() noexcept;
  [[nodiscard]] std::optional<std::uint32_t> take_untaken() noexcept;
  /// Copies a message. \errors as `next_message_into`.
  void copy(const message& from, const local_mr_slice& chosen) const;
  /// Leaves a message that `next_message` gave to the next that asks, unless its queue pair has
  /// gone.
  void leave(message&& untaken) noexcept;
  void append(arrived_list& to, std::uint32_t number) noexcept;
  /// Notes what a CQE tells of the message in a buffer.
  void note_arrival(std::uint32_t number, const ibv_wc& wc) noexcept;
  /// Puts back the buffers of a share's messages that nobody has taken.
  void forget_messages(receive_share& of) noexcept;
  void arm_limit();
  /// Ends waits for the limit if unreturned messages alone show that it is reached. Some devices
  /// look only when they take a receive.
  void check_limit() noexcept {
    if (limit_ != 0 && options_.buffers - kept_ < limit_) [[unlikely]]
      limit_reached();
  }
  [[nodiscard]] verbs::shared_receive_queue filled_queue();
  [[nodiscard]] request_outcome post(verbs::shared_receive_queue& queue,
                                     std::uint32_t number) noexcept;
  void renew() noexcept;
  /// Asks a share to give up what it does not use; never the only share that wants more.
  void reclaim() noexcept;
  /// Lets the shares that wanted more try again, not before `when`.
  void retry_at(time_point when) noexcept;
  static void on_retry(timer& self) noexcept;
  /// Forgets the scheduler, which may be gone before the next queue pair comes.
  void forget_scheduler() noexcept {
    disarm();
    scheduler_ = nullptr;
  }
  /// Notes that `count` more buffers are not promised.
  void freed(std::uint32_t count) noexcept {
    if (options_.for_messages) return;
    promised_ -= count;
    if (!growth_requests_.empty()) [[unlikely]]
      retry_at({});
  }
  /// Returns the most buffers that may be promised while newcomers still find enough.
  [[nodiscard]] std::uint32_t grown_max() const noexcept {
    constexpr std::uint32_t kept_free = 8;
    return options_.buffers - options_.buffers / kept_free;
  }
  void lose(std::uint32_t number, const request_outcome& why) noexcept;

  // The following members do not change after construction.
  verbs::protection_domain& pd_;
  const shared_receives_options options_;
  const std::size_t stride_;
  local_mr memory_;

  /// Reservation of a pool in an XRC domain at its driver.
  class attachment {
   public:
    attachment(completion_queue_driver* driver, shared_receives& pool);
    attachment(const attachment&) = delete;
    attachment& operator=(const attachment&) = delete;
    ~attachment();
    completion_queue_driver* const driver;  ///< null: the pool is in no domain
    const shared_receives& pool;
    const std::uint64_t wr_id_base;
  };
  const attachment attachment_;

  std::vector<holder*> holders_;  ///< indexed by buffer number; null: the device has the buffer
  counter posted_;
  counter withdrawn_;
  holder orphans_;  ///< holder for destroyed queue pairs, and for a pool in an XRC domain
  verbs::shared_receive_queue queue_;
  std::uint32_t kept_ = 0;  ///< buffers that have a holder
  std::uint32_t promised_ = 0;
  std::uint32_t shares_ = 0;
  intrusive_list<receive_share> all_;
  std::uint64_t uses_ = 0;  ///< messages so far
  intrusive_list<receive_share::growth_request> growth_requests_;
  scheduler* scheduler_ = nullptr;  ///< scheduler of the queue pairs, while there are any
  time_point ask_next_{};           ///< earliest time of the next shrink request
  time_point retry_at_{};           ///< time of the retry, while the timer is armed
  bool is_retrying_ = false;
  bool is_worth_asking_ = true;  ///< some share may have more than it needs
  std::uint32_t lost_ = 0;       ///< held buffers that the device refused to take back
  bool may_lack_some_ = false;   ///< a queue pair ended before the device reported all it had taken

  std::vector<arrived> arrived_;  ///< empty unless the pool is for messages
  arrived_list untaken_messages_;
  semaphore untaken_{0};     ///< at least one permit, or a waiter granted one, for each message
  std::uint32_t limit_ = 0;  ///< armed at the device; 0: none
  event limit_reached_;
};

/// A message in a buffer of the pool. The buffer serves the next message when this one is
/// destroyed. Move-only; the pool outlives it. \thread the executor's.
class CORDMA_EXPORT shared_receives::message {
 public:
  message() noexcept = default;
  message(message&& other) noexcept { *this = std::move(other); }
  message& operator=(message&& other) noexcept;
  ~message() { give_back(); }

  /// Returns which connection it came by: the number of that one's queue pair,
  /// `connection::verbs().num()`. A message of a connection that the program has just dropped may
  /// still come. The program may keep a message longer than its connection: then a newer one may
  /// have the number.
  [[nodiscard]] std::uint32_t qpn() const noexcept { return qpn_; }
  /// Returns the bytes that arrived, or that a WRITE with immediate data wrote.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] const std::optional<std::uint32_t>& immediate() const noexcept {
    return immediate_;
  }
  /// Returns true for a WRITE with immediate data: the bytes are where the peer wrote them.
  [[nodiscard]] bool is_write() const noexcept { return is_write_; }
  /// Returns what arrived, as registered memory; empty for a WRITE. A request that sends it on must
  /// end before the message is destroyed.
  [[nodiscard]] const_local_mr_slice payload() const;
  [[nodiscard]] explicit operator bool() const noexcept { return pool_ != nullptr; }

 private:
  friend class shared_receives;
  void give_back() noexcept;

  shared_receives* pool_ = nullptr;
  std::uint32_t number_ = 0;
  std::uint32_t qpn_ = 0;
  std::uint32_t size_bytes_ = 0;
  std::optional<std::uint32_t> immediate_;
  bool is_write_ = false;
};

template <class Where>
  requires(std::is_invocable_r_v<local_mr_slice, Where&, const shared_receives::arrival&>)
task<shared_receives::arrival> shared_receives::next_message_into(Where where) {
  message next = co_await next_message();
  const arrival about{.qpn = next.qpn(),
                      .size_bytes = next.size_bytes(),
                      .immediate = next.immediate(),
                      .is_write = next.is_write()};
  if (about.is_write) co_return about;
  try {
    copy(next, where(about));
  } catch (...) {
    leave(std::move(next));
    throw;
  }
  co_return about;
}

}  // namespace cordma
