#pragma once

#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/detail/base/probe.hpp>
#include <cordma/detail/transfer/completion_queue_driver.hpp>
#include <cordma/detail/transfer/held_memory.hpp>
#include <cordma/detail/transfer/send_operation.hpp>
#include <cordma/memory/slice.hpp>
#include <cordma/transfer/message.hpp>
#include <cordma/transfer/transfer_counters.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cordma {

/// The receive side of a queue pair: a ring of buffers in posting order, in which messages wait
/// until somebody takes them. Thread: the executor's. Cost: no allocation per receive.
class alignas(64) receive_queue {
 public:
  class taker;

  /// `qp`, on the queue of `driver`, and `held`, of that and of its protection domain, outlive it.
  receive_queue(verbs::queue_pair& qp, completion_queue_driver& driver, held_memory& held);
  receive_queue(const receive_queue&) = delete;
  receive_queue& operator=(const receive_queue&) = delete;
  ~receive_queue();

  /// Gives a buffer to the device; a later message lands in it.
  /// \errors  errc::receive_queue_full, stale_slice, access_denied, too_many_slices,
  ///   wrong_protection_domain, disconnected; an errno of ibv_post_recv(3).
  void post(const local_mr_slice& buffer);
  void post(std::span<const local_mr_slice> buffer) {
    if (buffer.size() == 1) return post(buffer[0]);
    post_several(buffer);
  }

  /// The device says that the oldest buffer has a message, while none has failed. False: nothing
  /// has happened, it is of a life before.
  bool succeeded(const ibv_wc& wc) noexcept;
  /// The same of one that may have failed. Whether it has.
  bool complete(std::uint32_t sequence, const ibv_wc& wc) noexcept;
  // As in `send_queue`.
  void end_all(const request_outcome& how) noexcept;
  void release_slots() noexcept;
  /// The same as `end_all` of one that will not be used; if it never was, its ring is freed.
  void refuse_all(const request_outcome& how) noexcept;

  [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }
  [[nodiscard]] std::uint32_t posted() const noexcept { return tail_ - completed_ - flushed_; }
  /// Messages that nobody has taken yet.
  [[nodiscard]] std::uint32_t pending_messages() const noexcept { return completed_ - head_; }
  void set_wr_id_base(std::uint64_t base) noexcept { wr_id_base_ = base; }

 private:
  struct place;
  void post_several(std::span<const local_mr_slice> buffer);
  struct alignas(64) slot {
    local_mr_slice slice;  // The first, mostly the only one.
    std::uint32_t size_bytes;
    std::uint32_t immediate;
    struct {
      std::uint8_t slice_count = 0;
      bool has_immediate = false;
      bool is_write = false;
      bool holds_memory = false;  // Of its only slice; of several, perhaps.
    } state;
    /// One slice that it holds, and bytes in it: all of that in one comparison.
    [[nodiscard]] bool is_like_most() const noexcept {
      constexpr decltype(state) like_most{.slice_count = 1, .holds_memory = true};
      return std::bit_cast<std::uint32_t>(state) == std::bit_cast<std::uint32_t>(like_most);
    }
  };

  slot& at(std::uint32_t sequence) noexcept { return slots_[sequence & mask_]; }
  local_mr_slice* more_of(std::uint32_t sequence) noexcept {
    return more_slices_.data() + std::size_t{sequence & mask_} * (slices_max_ - 1);
  }
  /// The message of the oldest buffer that has none.
  void arrived(const ibv_wc& wc) noexcept;
  [[nodiscard]] bool has_room() const noexcept { return tail_ - head_ < at_once_max_; }
  /// What that depends on has changed.
  void set_at_once_max() noexcept { at_once_max_ = closed_ || !want_room_.empty() ? 0 : depth_; }
  /// Whether one is there that nobody was promised.
  [[nodiscard]] bool has_message() const noexcept { return free_count_ != 0; }
  /// No message is longer (IBTA 9.2): what a buffer has beyond it the device need not know.
  static constexpr std::size_t message_bytes_max = std::size_t{1} << 31;
  /// As the device reads it. Returns how many are not empty.
  static int describe(std::span<const local_mr_slice> buffer, ibv_sge* to) noexcept;
  void probe_posted(std::uint32_t sequence) const noexcept {
    CORDMA_PROBE3(post, num_, unsigned(request_kind::receive), sequence);
  }
  /// The next, whose slot is filled. Returns 0, or what ibv_post_recv(3) does.
  [[gnu::always_inline]] int post_now(ibv_recv_wr& wr) noexcept;
  /// Why one is not posted, in a register.
  struct reason {
    reason() noexcept = default;
    reason(errc why) noexcept : code{why} {}
    explicit reason(int rc) noexcept : device_says{rc} {}
    explicit operator bool() const noexcept { return code != errc{} || device_says != 0; }
    [[nodiscard]] std::error_code to_code() const noexcept;

    errc code{};
    int device_says = 0;  // An errno.
  };
  /// What the device said, when the slot was filled.
  [[gnu::cold]] reason not_posted(int rc) noexcept;
  /// None: it is posted. There is room.
  template <std::size_t N>
  reason try_post(std::span<const local_mr_slice, N> buffer) noexcept;
  reason try_post_any(std::span<const local_mr_slice> buffer) noexcept;
  [[gnu::always_inline]] reason try_post_one(const local_mr_slice& buffer) noexcept;
  /// The next slot is of a buffer of so many slices, of which it may hold some.
  [[gnu::always_inline]] slot& begin_slot(std::size_t slices, bool holds_memory) noexcept;
  template <std::size_t N>
  [[nodiscard]] errc hold(std::span<const local_mr_slice, N> buffer) noexcept;
  [[nodiscard, gnu::always_inline]] bool try_hold(memory_block& block,
                                                  std::uint32_t generation) noexcept {
    return held_.try_hold(block, generation);
  }
  static constexpr verbs::access writable = verbs::access::local_write;
  /// Of a slice whose memory could not be held.
  [[nodiscard, gnu::cold]] static errc refusal_of(const local_mr_slice& slice) noexcept;
  void let_go(const local_mr_slice& slice) noexcept {
    if (slice.is_held()) held_.let_go(*slice.block());
  }
  void let_go(std::span<const local_mr_slice> slices) noexcept {
    for (const local_mr_slice& slice : slices) let_go(slice);
  }
  /// It holds nothing any more.
  void let_go_of(slot& s, std::uint32_t sequence) noexcept {
    if (!std::exchange(s.state.holds_memory, false)) return;
    let_go(s.slice);
    if (s.state.slice_count == 1) [[likely]]
      return;
    let_go({more_of(sequence), s.state.slice_count - std::size_t{1}});
  }
  [[noreturn, gnu::cold]] void throw_refused(reason why, std::size_t slices);
  /// Of a buffer of so many slices.
  [[gnu::cold]] request_outcome refusal(reason why, std::size_t slices) noexcept;

  void promise(taker& to) noexcept;
  /// To the first who waits.
  void promise_to_next() noexcept;
  /// Promises it a message, or ends it without one. False: it waits for one.
  bool serve(taker& t) noexcept;
  /// The oldest, of which there is one, and not among those that nobody was promised.
  message take() noexcept;
  [[gnu::always_inline]] message take_any(slot& s) noexcept;
  /// Others wait for its place.
  [[gnu::cold]] message take_and_give_room(slot& s) noexcept;
  [[gnu::always_inline]] buffer_slices take_slices(slot& s) noexcept;
  [[gnu::cold]] buffer_slices take_several(slot& s) noexcept;
  /// It no longer waits.
  void leave(place& p) noexcept;
  void give_room() noexcept;

  // Do not change once made.
  completion_queue_driver& driver_;
  ibv_qp* const native_;
  const std::uint32_t num_;
  transfer_tally& tally_;
  std::uint32_t depth_;
  std::uint32_t mask_;
  std::uint32_t slices_max_;
  std::uint64_t wr_id_base_ = 0;

  // Sequence numbers: [head, completed) hold messages; of [completed, tail) the first `flushed`
  // came back without one, the rest are with the device.
  std::uint32_t head_ = sequence_first;
  std::uint32_t completed_ = sequence_first;
  std::uint32_t flushed_ = 0;
  std::uint32_t tail_ = sequence_first;
  std::uint32_t at_once_max_;     // The depth; 0 while others wait for room, and once it is closed.
  std::uint32_t free_count_ = 0;  // Of the messages, those that nobody was promised.
  held_memory& held_;
  std::vector<slot> slots_;
  std::vector<local_mr_slice> more_slices_;  // One less than `slices_max_` a slot.
  intrusive_list<place> want_room_;
  // Whoever waits for a message finds none that is not promised: first those who have a promise.
  intrusive_list<place> takers_;
  place* first_waiting_ = nullptr;  // Of those. Null: nobody waits.
  std::optional<request_outcome> closed_;
};

template <std::size_t N>
[[gnu::always_inline]] inline errc receive_queue::hold(
    std::span<const local_mr_slice, N> buffer) noexcept {
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    if (!buffer[i].is_held()) continue;
    memory_block& block = *buffer[i].block();
    const bool is_held = try_hold(block, buffer[i].generation());
    if (is_held && verbs::allows(block.access(), writable)) [[likely]]
      continue;
    const errc why = is_held ? errc::access_denied : refusal_of(buffer[i]);
    let_go(buffer.first(is_held ? i + 1 : i));
    return why;
  }
  return {};
}

inline int receive_queue::post_now(ibv_recv_wr& wr) noexcept {
  ibv_recv_wr* bad;
  if (const int rc = ibv_post_recv(native_, &wr, &bad); rc != 0) [[unlikely]]
    return rc;
  tally_.posted(request_kind::receive);
  probe_posted(tail_++);
  return 0;
}

template <std::size_t N>
[[gnu::always_inline]] inline receive_queue::reason receive_queue::try_post(
    std::span<const local_mr_slice, N> buffer) noexcept {
  if constexpr (N == 1) {
    return try_post_one(buffer[0]);
  } else {
    return try_post_any(buffer);
  }
}

inline receive_queue::slot& receive_queue::begin_slot(std::size_t slices,
                                                      bool holds_memory) noexcept {
  slot& s = at(tail_);
  s.state = {.slice_count = std::uint8_t(slices), .holds_memory = holds_memory};
  return s;
}

inline receive_queue::reason receive_queue::try_post_one(const local_mr_slice& buffer) noexcept {
  const std::size_t length = buffer.size_bytes();
  if (buffer.block() == nullptr || length - 1 >= message_bytes_max) [[unlikely]]
    return try_post_any({&buffer, 1});
  if (!try_hold(*buffer.block(), buffer.generation())) [[unlikely]]
    return refusal_of(buffer);
  memory_block& block = *buffer.block();
  if (!verbs::allows(block.access(), writable)) [[unlikely]] {
    held_.let_go(block);
    return errc::access_denied;
  }
  std::byte* const address = buffer.bytes().data();
  const std::uint32_t lkey = buffer.lkey();
  std::construct_at(&begin_slot(1, true).slice, address, length, &block, lkey, buffer.generation());
  ibv_sge sge{.addr = reinterpret_cast<std::uint64_t>(address),
              .length = std::uint32_t(length),
              .lkey = lkey};
  ibv_recv_wr wr{.wr_id = wr_id_base_ | tail_, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  if (const int rc = post_now(wr); rc != 0) [[unlikely]]
    return not_posted(rc);
  return {};
}

[[gnu::always_inline]] inline message receive_queue::take() noexcept {
  slot& s = at(head_++);
  if (at_once_max_ == 0) [[unlikely]]
    return take_and_give_room(s);
  if (!s.is_like_most()) return take_any(s);
  held_.let_go(*s.slice.block());
  return {.slices = buffer_slices::of_old(s.slice), .size_bytes = s.size_bytes};
}

inline message receive_queue::take_any(slot& s) noexcept {
  message taken{.slices = take_slices(s), .size_bytes = s.size_bytes, .is_write = s.state.is_write};
  if (s.state.has_immediate) taken.immediate = s.immediate;
  return taken;
}

inline buffer_slices receive_queue::take_slices(slot& s) noexcept {
  if (s.state.slice_count != 1) [[unlikely]]
    return take_several(s);
  if (std::exchange(s.state.holds_memory, false)) held_.let_go(*s.slice.block());
  return buffer_slices::of_old(s.slice);
}

inline bool receive_queue::succeeded(const ibv_wc& wc) noexcept {
  if (wc.wr_id != (wr_id_base_ | completed_) || completed_ == tail_) [[unlikely]]
    return false;
  arrived(wc);
  ++free_count_;
  if (first_waiting_ != nullptr) [[unlikely]]
    promise_to_next();
  return true;
}

[[gnu::always_inline]] inline void receive_queue::arrived(const ibv_wc& wc) noexcept {
  const std::uint32_t sequence = completed_;
  CORDMA_PROBE5(complete, num_, unsigned(request_kind::receive), sequence, wc.status, wc.byte_len);
  slot& s = at(sequence);
  s.size_bytes = wc.byte_len;
  if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) [[unlikely]] {
    s.state.has_immediate = true;
    s.state.is_write = wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    s.immediate = be32toh(wc.imm_data);
  }
  ++completed_;
  tally_.completed(request_kind::receive);
}

}  // namespace cordma
