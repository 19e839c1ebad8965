#pragma once

#include <cordma/base/assert.hpp>
#include <cordma/base/probe.hpp>
#include <cordma/coro/operation.hpp>
#include <cordma/memory/slice.hpp>
#include <cordma/transfer/completion_queue_driver.hpp>
#include <cordma/transfer/held_memory.hpp>
#include <cordma/transfer/receive_batch.hpp>
#include <cordma/transfer/submission.hpp>
#include <cordma/transfer/transfer_counters.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cordma {

class queue_pair;

/// Slices that one receive buffer can consist of.
inline constexpr std::size_t receive_slices_max = 4;

/// The slices of one receive buffer, in order: `receive_slices_max` at most. Can be posted again as
/// they are.
class buffer_slices {
 public:
  buffer_slices() noexcept {}  // Clears nothing: that would take as long as all else of a receive.
  buffer_slices(const local_mr_slice& first) noexcept : size_{1} {  // NOLINT: one is a buffer.
    std::construct_at(at(0), first);
  }
  void push_back(const local_mr_slice& next) noexcept {
    CORDMA_ASSERT(size_ < receive_slices_max, "a receive buffer has no room for another slice");
    std::construct_at(at(size_++), next);
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] const local_mr_slice* begin() const noexcept {
    return reinterpret_cast<const local_mr_slice*>(bytes_.data());
  }
  [[nodiscard]] const local_mr_slice* end() const noexcept { return begin() + size_; }
  [[nodiscard]] const local_mr_slice& operator[](std::size_t i) const noexcept {
    CORDMA_ASSERT(i < size_, "a receive buffer has no slice of that number");
    return begin()[i];
  }

 private:
  [[nodiscard]] local_mr_slice* at(std::size_t i) noexcept {
    return reinterpret_cast<local_mr_slice*>(bytes_.data()) + i;
  }

  std::uint32_t size_ = 0;
  alignas(local_mr_slice) std::array<std::byte, receive_slices_max * sizeof(local_mr_slice)> bytes_;
};

/// A completed receive.
struct message {
  buffer_slices slices{};      ///< The buffer that was posted, as it was posted.
  std::size_t size_bytes = 0;  ///< Bytes that arrived; for a WRITE with immediate: that it wrote.
  std::optional<std::uint32_t> immediate{};
  bool is_write = false;  ///< A WRITE with immediate: the bytes are where the peer wrote them.

  /// What arrived in the first (mostly: the only) slice; empty for a WRITE.
  [[nodiscard]] local_mr_slice payload() const {
    if (is_write || slices.empty()) return {};
    return slices[0].first(std::min(size_bytes, slices[0].size_bytes()));
  }
};

/// The receive side of a queue pair: a ring of buffers in posting order, in which messages wait
/// until somebody takes them. Thread: the executor's. Cost: no allocation per receive.
class receive_queue final : private turn_end {
 public:
  class taker;

  /// Of `owner`, which fails when the device refuses what waited for a doorbell.
  receive_queue(queue_pair& owner, completion_queue_driver& driver, verbs::protection_domain& pd);
  receive_queue(const receive_queue&) = delete;
  receive_queue& operator=(const receive_queue&) = delete;
  ~receive_queue();

  /// Gives a buffer to the queue; a later message lands in it. While others are there to be taken,
  /// it may go to the device with those that are posted in this turn
  /// (`completion_queue_options::doorbell_batching`); what that refuses then breaks the queue
  /// pair.
  /// \errors  errc::receive_queue_full, stale_slice, access_denied, too_many_slices,
  ///   wrong_protection_domain, disconnected; an errno of ibv_post_recv(3), if it goes at once.
  void post(const local_mr_slice& buffer);
  void post(std::span<const local_mr_slice> buffer) {
    if (buffer.size() == 1) return post(buffer[0]);
    post_several(buffer);
  }

  /// What waits for one doorbell never reaches the device, which takes no more.
  void drop_waiting() noexcept;

  // As in `send_queue`.
  bool complete(std::uint32_t sequence, const ibv_wc& wc) noexcept;
  void end_all(const request_outcome& how) noexcept;
  void release_slots() noexcept;
  /// The same as `end_all` of one that will not be used; if it never was, its ring is freed.
  void refuse_all(const request_outcome& how) noexcept;

  [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }
  /// With those that wait for a doorbell.
  [[nodiscard]] std::uint32_t posted() const noexcept { return tail_ - completed_ - flushed_; }
  /// Messages that nobody has taken yet.
  [[nodiscard]] std::uint32_t pending_messages() const noexcept { return completed_ - head_; }
  void set_wr_id_base(std::uint64_t base) noexcept { wr_id_base_ = base; }

 private:
  friend class receive_batch;
  void post_several(std::span<const local_mr_slice> buffer);
  struct slot {
    local_mr_slice slice;  // The first, mostly the only one.
    std::uint32_t size_bytes;
    std::uint32_t immediate;
    std::uint8_t slice_count = 0;
    bool has_immediate = false;
    bool is_write = false;
    bool holds_memory = false;  // Perhaps, of one of its slices.
  };

  slot& at(std::uint32_t sequence) noexcept { return slots_[sequence & mask_]; }
  local_mr_slice* more_of(std::uint32_t sequence) noexcept {
    return more_slices_.data() + std::size_t{sequence & mask_} * (slices_max_ - 1);
  }
  [[nodiscard]] bool has_room() const noexcept {
    return tail_ - head_ < depth_ && want_room_.empty();
  }
  /// Whether one is there that nobody was promised.
  [[nodiscard]] bool has_message() const noexcept { return pending_messages() > promised_count_; }
  /// Whether the next may wait for others: more messages are there to be taken, after which others
  /// will be posted, and the device has as many as wait.
  [[nodiscard]] bool may_wait() const noexcept {
    return has_message() && 2 * waiting_ < posted() && batch_.is_open();
  }
  /// Of that slot's buffer, with its slices from `sges` on. Gives the next that is free of these.
  [[gnu::always_inline]] ibv_sge* fill(ibv_recv_wr& wr, std::uint32_t sequence,
                                       ibv_sge* sges) noexcept;
  /// Gives the device those that wait. What it refuses was given to the queue before, and nobody is
  /// there to be told: at the end of the turn, when nobody else is in the middle of something, the
  /// owner fails.
  void post_waiting() noexcept;
  void on_turn_end() noexcept override;
  /// Those from that number on are not posted after all.
  void unpost_from(std::uint32_t first) noexcept;
  void probe_posted(std::uint32_t sequence) const noexcept {
    CORDMA_PROBE3(post, num_, unsigned(request_kind::receive), sequence);
  }
  /// Why it is not posted; none: it is. There is room.
  template <std::size_t N>
  std::error_code try_post(std::span<const local_mr_slice, N> buffer) noexcept;
  std::error_code try_post_any(std::span<const local_mr_slice> buffer) noexcept;
  template <std::size_t N>
  [[nodiscard]] errc hold(std::span<const local_mr_slice, N> buffer) noexcept;
  static constexpr verbs::access writable = verbs::access::local_write;
  [[nodiscard, gnu::cold]] errc refusal_of(const memory_block& block) const noexcept;
  void let_go(const local_mr_slice& slice) noexcept {
    if (slice.is_held()) held_.let_go(*slice.block());
  }
  void let_go(std::span<const local_mr_slice> slices) noexcept {
    for (const local_mr_slice& slice : slices) let_go(slice);
  }
  void let_go_of(slot& s, std::uint32_t sequence) noexcept {
    if (!std::exchange(s.holds_memory, false)) return;
    let_go(s.slice);
    if (s.slice_count == 1) [[likely]]
      return;
    let_go({more_of(sequence), s.slice_count - std::size_t{1}});
  }
  [[noreturn, gnu::cold]] void throw_refused(std::error_code why, std::size_t slices);
  /// Of a buffer of so many slices.
  [[gnu::cold]] request_outcome refusal(std::error_code why, std::size_t slices) noexcept;

  void promise(taker& to) noexcept;
  /// To the first who waits, if any.
  void promise_to_next() noexcept;
  /// Promises it a message, or ends it without one. False: it waits for one.
  bool serve(taker& t) noexcept;
  message take(taker& t) noexcept;
  [[gnu::cold]] buffer_slices slices_of(const slot& s, std::uint32_t sequence) noexcept;
  void take_back(taker& t) noexcept;
  /// It no longer waits.
  void leave(taker& t) noexcept;
  void give_room() noexcept;

  // Do not change once made.
  queue_pair& owner_;
  completion_queue_driver& driver_;
  scheduler& home_;
  receive_batch& batch_;
  ibv_qp* const native_;
  const std::uint32_t num_;
  const ibv_pd* pd_;
  transfer_tally& tally_;
  std::uint32_t depth_;
  std::uint32_t mask_;
  std::uint32_t slices_max_;
  std::uint64_t wr_id_base_ = 0;

  // Sequence numbers: [head, completed) hold messages; of [completed, tail) the first `flushed`
  // came back without one, the last `waiting` wait in the batch, the rest are with the device.
  std::uint32_t head_ = sequence_first;
  std::uint32_t completed_ = sequence_first;
  std::uint32_t flushed_ = 0;
  std::uint32_t waiting_ = 0;
  int refusal_ = 0;  // Of those that waited: what ibv_post_recv(3) returned.
  std::uint32_t tail_ = sequence_first;
  std::uint32_t promised_count_ = 0;  // Of the messages.
  held_memory held_;
  std::vector<slot> slots_;
  std::vector<local_mr_slice> more_slices_;  // One less than `slices_max_` a slot.
  intrusive_list<taker> want_room_;
  // Whoever waits for a message finds none that is not promised: first those who have a promise.
  intrusive_list<taker> takers_;
  taker* first_waiting_ = nullptr;  // Of those. Null: nobody waits.
  std::optional<request_outcome> closed_;
};

/// Who waits for a message, or for room for a buffer first. Told of a message, it may be slow to
/// take it: the queue knows what it has promised.
class receive_queue::taker : public list_hook<receive_queue::taker>, private suspension {
 protected:
  explicit taker(receive_queue& queue) noexcept : suspension{&on_stop}, queue_{&queue} {}
  taker(taker&&) noexcept = default;  // Only before it starts.
  ~taker() {
    if (state_ <= state::promised) leave();
    detail::assume(!list_hook<taker>::is_linked());
    nobody_waits();
  }

  /// The first half of an operation's `start`. Whether it has ended, as it has when a message is
  /// there: for who takes that at once.
  template <std::size_t N>
  bool post(bool posts, std::span<const local_mr_slice, N> buffer, const environment& env) noexcept;
  /// For who does not take its message at once: it is promised. True.
  bool keeps() noexcept;
  /// Whether a message comes before anything else is to be done.
  [[nodiscard]] bool look(const environment& env) noexcept;
  /// The second half.
  bool wait(waiter& w, const environment& env) noexcept;
  [[nodiscard]] bool failed() const noexcept { return state_ > state::granted; }
  message take() {
    if (failed()) [[unlikely]]
      return take_result().value();
    return queue_->take(*this);
  }
  result<message> take_result() noexcept;

 private:
  friend class receive_queue;
  enum class state : unsigned char { waits, promised, granted, taken, stopped, failed };

  static void on_stop(stop_callback& self) noexcept;
  /// It has not ended, or not been taken.
  void leave() noexcept;
  [[gnu::cold]] bool stopped() noexcept;
  [[nodiscard]] bool takes_message() noexcept {
    if (!queue_->has_message()) return false;
    state_ = state::granted;
    return true;
  }
  void fail(const request_outcome& how) noexcept {
    outcome_ = how;
    qp_num_ = queue_->num_;
    state_ = state::failed;
  }

  receive_queue* queue_;
  std::uint32_t qp_num_ = 0;  // Once it failed: the queue pair may be gone when it is asked for.
  state state_ = state::waits;
  std::span<const local_mr_slice> buffer_;  // Of one that waits for room.
  std::optional<request_outcome> outcome_;  // Of one that failed.
};

/// `recv`, which posts a buffer of N slices, once the queue has room for it (a message that nobody
/// has taken yet takes up some), and `next_message`, which posts none. Gives the next message;
/// which buffer it is in, `message::slices` says. Messages come in the order the peer sent them. A
/// stop loses nothing: the message goes to the next who asks, a buffer that was posted stays so.
template <std::size_t N, bool Posts = true>
class [[nodiscard]] receive_op final : public operation_base<receive_op<N, Posts>>,
                                       private receive_queue::taker {
 public:
  using value_type = message;

  receive_op(receive_queue& queue, const std::array<local_mr_slice, N>& buffer) noexcept
      : taker{queue}, buffer_{buffer} {
    static_assert(N <= receive_slices_max,
                  "a receive buffer has at most receive_slices_max slices");
  }
  bool begin(const environment& env) noexcept {
    return taker::post(Posts, std::span<const local_mr_slice, N>{buffer_}, env);
  }
  bool begin_and_look(const environment& env) noexcept { return begin(env) || look(env); }
  using taker::wait;
  bool start(waiter& w, const environment& env) noexcept {
    return begin(env) ? taker::keeps() : wait(w, env);
  }
  using taker::failed;
  using taker::take;
  using taker::take_result;

 private:
  std::array<local_mr_slice, N> buffer_;
};
using next_message_op = receive_op<0, false>;

template <std::size_t N>
[[gnu::always_inline]] inline errc receive_queue::hold(
    std::span<const local_mr_slice, N> buffer) noexcept {
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    if (!buffer[i].is_held()) continue;
    memory_block& block = *buffer[i].block();
    const bool is_held = held_.try_hold(block, buffer[i].generation());
    if (is_held && block.pd() == pd_ && verbs::allows(block.access(), writable)) [[likely]]
      continue;
    const errc why = is_held ? refusal_of(block) : errc::stale_slice;
    let_go(buffer.first(is_held ? i + 1 : i));
    return why;
  }
  return {};
}

inline ibv_sge* receive_queue::fill(ibv_recv_wr& wr, std::uint32_t sequence,
                                    ibv_sge* sges) noexcept {
  // No message is longer (IBTA 9.2): what a buffer has beyond it the device need not know.
  static constexpr std::size_t message_bytes_max = std::size_t{1} << 31;
  const slot& s = at(sequence);
  ibv_sge* const first = sges;
  const auto add = [&sges](const local_mr_slice& slice) {
    if (slice.empty()) return;  // Some devices read a length of 0 as 2 GiB.
    *sges++ = {.addr = reinterpret_cast<std::uint64_t>(slice.bytes().data()),
               .length = std::uint32_t(std::min(slice.size_bytes(), message_bytes_max)),
               .lkey = slice.lkey()};
  };
  if (s.slice_count != 0) [[likely]]
    add(s.slice);
  for (std::size_t i = 1; i < s.slice_count; ++i) add(more_of(sequence)[i - 1]);
  wr = {.wr_id = wr_id_base_ | sequence,
        .next = nullptr,
        .sg_list = first,
        .num_sge = int(sges - first)};
  return sges;
}

template <std::size_t N>
[[gnu::always_inline]] inline std::error_code receive_queue::try_post(
    std::span<const local_mr_slice, N> buffer) noexcept {
  if (N != 1 && buffer.size() > slices_max_) [[unlikely]]  // At least 1.
    return errc::too_many_slices;
  if (const errc refused = hold(buffer); refused != errc{}) [[unlikely]]
    return refused;
  slot& s = at(tail_);
  s.slice_count = std::uint8_t(buffer.size());
  s.holds_memory = buffer.size() == 1 ? buffer[0].block() != nullptr : !buffer.empty();
  for (std::size_t i = 0; i < buffer.size(); ++i)
    std::construct_at(i == 0 ? &s.slice : more_of(tail_) + (i - 1), buffer[i]);
  const bool waits = may_wait();
  if (waits || waiting_ != 0) {
    ++tail_;
    if (waiting_++ == 0) batch_.begin(*this);
    if (!waits || waiting_ == receive_batch::receives_max) batch_.ring();
    return {};
  }
  ibv_recv_wr wr;
  std::array<ibv_sge, std::min(N, receive_slices_max)> sges;
  fill(wr, tail_, sges.data());
  ibv_recv_wr* bad = nullptr;
  if (const int rc = ibv_post_recv(native_, &wr, &bad); rc != 0) [[unlikely]] {
    let_go_of(s, tail_);
    return {rc, std::system_category()};
  }
  tally_.posted(request_kind::receive);
  probe_posted(tail_++);
  return {};
}

inline void receive_queue::promise(taker& to) noexcept {
  to.state_ = taker::state::promised;
  ++promised_count_;
}

inline void receive_queue::promise_to_next() noexcept {
  if (first_waiting_ == nullptr) return;
  taker& next = *std::exchange(first_waiting_, takers_.after(*first_waiting_));
  promise(next);
  next.end();
}

inline bool receive_queue::serve(taker& t) noexcept {
  if (has_message()) {
    promise(t);
    takers_.push_back(t);
    return true;
  }
  if (closed_) [[unlikely]] {
    t.fail(*closed_);
    return true;
  }
  takers_.push_back(t);
  if (first_waiting_ == nullptr) first_waiting_ = &t;
  return false;
}

inline message receive_queue::take(taker& t) noexcept {
  if (t.state_ == taker::state::promised) {
    t.list_hook<taker>::unlink();
    --promised_count_;
  }
  t.state_ = taker::state::taken;
  slot& s = at(head_);
  message taken{.slices = s.slice, .size_bytes = s.size_bytes, .is_write = s.is_write};
  if (s.has_immediate) taken.immediate = s.immediate;
  if (s.slice_count != 1) [[unlikely]]
    taken.slices = slices_of(s, head_);
  let_go_of(s, head_++);
  if (!want_room_.empty()) [[unlikely]]
    give_room();
  return taken;
}

template <std::size_t N>
[[gnu::always_inline]] inline bool receive_queue::taker::post(
    bool posts, std::span<const local_mr_slice, N> buffer, const environment& env) noexcept {
  // Who is stopped before it begins posts nothing.
  if (env.stop.stop_requested()) [[unlikely]]
    return stopped();
  // What came before a failure can still be taken; nothing more will come.
  if (posts && !queue_->closed_) {
    if (!queue_->has_room()) [[unlikely]] {
      buffer_ = buffer;
      return false;
    }
    if (const std::error_code why = queue_->try_post(buffer)) [[unlikely]] {
      fail(queue_->refusal(why, buffer.size()));
      return true;
    }
  }
  if (takes_message()) return true;
  if (!queue_->closed_) [[likely]]
    return false;
  fail(*queue_->closed_);
  return true;
}

inline bool receive_queue::taker::keeps() noexcept {
  if (state_ != state::granted) return true;
  queue_->promise(*this);
  queue_->takers_.push_back(*this);  // Nobody waits, or it would have that message.
  return true;
}

inline bool receive_queue::taker::look(const environment& env) noexcept {
  if (buffer_.data() != nullptr) [[unlikely]]  // It waits for room first.
    return false;
  completion_queue_driver& driver = queue_->driver_;
  if (!driver.is_looked_at(*env.scheduler)) return false;
  while (driver.look())
    if (takes_message()) return true;
  return false;
}

inline bool receive_queue::complete(std::uint32_t sequence, const ibv_wc& wc) noexcept {
  const std::uint32_t next = completed_ + flushed_;
  if (sequence != next || next == tail_) return false;  // Of a life before.
  CORDMA_PROBE5(complete, num_, unsigned(request_kind::receive), sequence, wc.status, wc.byte_len);
  if (wc.status != IBV_WC_SUCCESS) [[unlikely]] {
    tally_.failed(request_kind::receive);
    let_go_of(at(sequence), sequence);
    ++flushed_;
    return true;
  }
  if (flushed_ > 0) return false;  // No message comes after a failure; the device is confused.
  slot& s = at(sequence);
  s.size_bytes = wc.byte_len;
  s.is_write = wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  s.has_immediate = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (s.has_immediate) s.immediate = be32toh(wc.imm_data);
  ++completed_;
  tally_.completed(request_kind::receive);
  promise_to_next();
  return false;
}

}  // namespace cordma
