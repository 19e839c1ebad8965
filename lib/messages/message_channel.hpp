#pragma once

#include "message_frame.hpp"
#include "receive_buffers.hpp"
#include "request/queue_pair.hpp"
#include "stream_terms.hpp"

#include <cordma/detail/agent/agent.hpp>
#include <cordma/detail/coro/frame_cache.hpp>
#include <cordma/messages/message_stream.hpp>

#include <array>
#include <cstring>

namespace cordma::detail {

struct large_send;

/// What a message lends: it goes behind their binds, with the same doorbell.
struct message_loans {
  std::array<inline_grant*, inline_grant::per_message_max> all{};
  unsigned count = 0;
};

struct large_options {
  bool is_fenced = false;
  message_loans lent{};
  /// Where to say that the peer may know of it.
  bool* is_announced = nullptr;
};

/// What a channel works with: of a connection, or, in tests, of what stands for one. All but `data`
/// and its agent outlives it.
struct channel_resources {
  queue_pair& data;
  cordma::agent& agent;
  mr_allocator& memory;
  std::size_t read_bytes_max;  ///< Of one READ.
};

/// Carries messages over a connection's data queue pair, with credits. What is made of them is a
/// derived class's: a `message_stream`, a client or a server of RPC. Frames are handled in the
/// middle of a reap. Counted by references, since messages outlive connections; the queue pair has
/// one. Thread: the executor's. Cost of a small message: one SEND, of which each sixteenth has a
/// completion entry; beyond `inline_max` a copy of it in registered memory. Nothing of malloc's.
class message_channel : public counted_channel, public message_handler, private waiter {
 public:
  using frame = message_protocol::frame;
  /// Whether a message waits for those before it: else large ones are overtaken.
  enum class order { as_sent, any };
  static constexpr std::size_t head_max = 72;
  /// For bytes behind a head of full length. What fits there goes with it: one piece costs a device
  /// less than two.
  static constexpr std::size_t together_max = 32;
  static constexpr std::size_t head_room = message_protocol::header_bytes + head_max + together_max;

  /// What is sent when there is credit and room for it. Destroying it takes it back.
  struct outgoing : list_hook<outgoing> {
    message_protocol::frame frame;
    /// Room for the frame; behind its `header_bytes`, `head_bytes` of what comes before `bytes`.
    std::array<std::byte, head_room> head;
    std::uint32_t head_bytes = 0;
    /// Where so many bytes more of it are to be put: `head_max` at most.
    [[nodiscard]] std::byte* extend_head(std::uint32_t size_bytes) noexcept {
      head_bytes += size_bytes;
      return &head[message_protocol::header_bytes + head_bytes - size_bytes];
    }
    [[nodiscard]] std::byte* open_head(std::uint32_t size_bytes) noexcept {
      head_bytes = 0;
      return extend_head(size_bytes);
    }
    std::span<const std::byte> bytes{};
    std::optional<std::uint32_t> immediate{};
    /// In place of immediate data it has the key of a window of the peer's, which ends with it.
    bool is_invalidation = false;
    bool is_fenced = false;  ///< goes when the READs posted before it have ended
    message_loans lent{};
    /// It is on its way, or, with a reason, will never be. May destroy it. Perhaps in the middle of
    /// a reap.
    void (*on_posted)(outgoing& self, const failure* why) noexcept = nullptr;
  };
  class send_op;

  /// Makes a channel of the derived class `Channel`, posts its receives and tells the peer.
  template <class Channel, class... Arguments>
  static Channel& make(Arguments&&... arguments) {
    auto* const channel = new Channel(std::forward<Arguments>(arguments)...);
    static_cast<message_channel*>(channel)->begin();
    return *channel;
  }

  // Sending.
  /// A message, which waits for the peer to have room for it, or what is `control`, which does not
  /// wait for the peer's program.
  void send(outgoing& o) noexcept;
  static task<> send_bytes(channel_ref self, std::span<const std::byte> bytes,
                           std::optional<std::uint32_t> immediate);
  static task<> send_memory(channel_ref self, const_local_mr_slice bytes,
                            std::optional<std::uint32_t> immediate);
  /// A message that does not fit the peer's buffers: by rendezvous.
  static task<> send_large(channel_ref self, local_mr memory,
                           std::optional<std::uint32_t> immediate, large_options how = {});

  /// \errors errc::wrong_length: longer than the peer takes.
  void check_length(std::size_t length) const;

  // Receiving.
  /// The next message, of those that `on_message` told of.
  stream_message deliver() noexcept { return deliver(inbox_.front()); }
  /// The message is dealt with: its buffer is for the next one.
  void give_back(arrived_message& a) noexcept;
  /// The same of a large one, which any order left to whoever has it.
  void drop_large() noexcept;
  [[nodiscard]] const_local_mr_slice slice_of(const arrived_message& a) const noexcept;

  [[nodiscard]] executor& home() const noexcept { return home_; }
  /// Once the peer has told what it takes.
  [[nodiscard]] bool is_open() const noexcept { return opened_.is_set() && !failed_; }
  /// What it takes.
  [[nodiscard]] const stream_terms& peer() const noexcept { return peer_; }
  [[nodiscard]] mr_allocator& memory() noexcept { return *memory_; }
  [[nodiscard]] const std::optional<failure>& failed() const noexcept { return failed_; }
  [[nodiscard]] const stream_counters& counters() const noexcept { return counters_; }

 protected:
  message_channel(const channel_resources& resources, const stream_options& options, order o);
  ~message_channel() override;
  static channel_resources resources_of(connection& conn);

  // In the middle of a reap; none is called before `begin`.
  /// There is one more to `deliver`.
  virtual void on_message() noexcept = 0;
  /// The bytes of a `control` frame, which go after the call. \errors errc::bad_frame: the peer is
  ///   cut off.
  virtual void on_control(std::span<const std::byte> bytes);
  virtual void on_open() noexcept {}
  /// No more messages will come; `failed` says why. Those that there are can be delivered.
  virtual void on_closed() noexcept = 0;

  void break_connection(const failure& why) noexcept;
  /// Those that `on_message` told of.
  [[nodiscard]] intrusive_list<arrived_message>& inbox() noexcept { return inbox_; }
  /// One of them.
  stream_message deliver(arrived_message& a) noexcept {
    a.list_hook<arrived_message>::unlink();
    ++counters_.received;
    if (a.large != nullptr) [[unlikely]]
      return deliver_large(a);
    return {channel_ref{*this}, a};
  }
  [[nodiscard]] static std::span<const std::byte> bytes_of(const arrived_message& a) noexcept {
    return a.bytes;
  }
  [[nodiscard]] cordma::agent* agent() noexcept { return agent_; }

 private:
  friend struct large_receive;
  friend struct large_send;
  class large_handle;

  void begin();
  // message_handler.
  void on_receive(std::uint32_t number, const ibv_wc& wc) noexcept override;
  bool on_room() noexcept override {
    pump();
    return has_waiting() && lacks_room();
  }
  void on_idle_awaited() noexcept override;
  void on_shrink_wanted() noexcept override;
  void on_growth_possible() noexcept override;
  void on_failure() noexcept override;
  void on_gone() noexcept override;

  static std::coroutine_handle<> on_opened(waiter& self) noexcept;
  inline void take(arrived_message& a, const ibv_wc& wc);
  void take_other(arrived_message& a, std::span<const std::byte> bytes);
  inline void take_credits(std::uint32_t taken);
  inline bool consume(arrived_message& a) noexcept;
  /// Buffers are put back several at once. Those that wait for others are not to be waited for by
  /// the peer: what the program has may be long until it gives it back.
  void post_spare_soon() noexcept {
    const bool may_peer_send = received_ - told_ + message_protocol::credits_reserved < kept_to_;
    if (!may_peer_send && buffers_.has_spare() && !spare_poster_.is_linked()) [[unlikely]]
      home_.schedule_last(spare_poster_);
  }
  static std::coroutine_handle<> on_spare(waiter& self) noexcept;
  void tell_whole() noexcept;

  [[nodiscard]] std::uint32_t under_way() const noexcept { return sent_ - taken_by_peer_; }
  [[nodiscard]] bool may_send(std::uint32_t credits_left) const noexcept {
    return under_way() + credits_left < peer_credit_;
  }
  /// A credit frame alone is answered by nothing: it may be under way for long, and has a place of
  /// its own.
  [[nodiscard]] std::uint32_t not_taken() const noexcept {
    return under_way() - (sent_ - credit_frame_ <= under_way() ? 1 : 0);
  }
  [[nodiscard]] bool may_send_message() const noexcept {
    return not_taken() + message_protocol::credits_reserved < peer_credit_;
  }
  void pump() noexcept {
    if (opened_.is_set() && (has_waiting() || needs_telling())) [[unlikely]]
      pump_all();
  }
  [[nodiscard]] bool has_waiting() const noexcept {
    return !outbox_.empty() || !control_.empty() || is_to_shrink();
  }
  void pump_all() noexcept;
  [[nodiscard]] outgoing* next() noexcept;
  [[nodiscard]] bool lacks_room() noexcept;
  bool post_next() noexcept;
  inline bool try_post(outgoing& o) noexcept;
  bool refuse(outgoing& o, const failure& why) noexcept;
  inline bool post(outgoing& o, unsigned flags = 0);
  inline bool post_inline(outgoing& o, wr_summary& message, std::size_t head_bytes) noexcept;
  bool post_copy(const outgoing& o, wr_summary& message, std::size_t head_bytes);
  /// Posts `message`, and ahead of it the binds of what it lends.
  inline bool post_behind_binds(const outgoing& o, const wr_summary& message) noexcept;
  void post_credit(unsigned flags = 0) noexcept;
  [[nodiscard]] bool needs_telling() const noexcept { return taken_ != told_ && are_credits_low(); }
  [[nodiscard]] bool are_credits_low() const noexcept;

  task<> opened();

  // Credit that changes, of buffers that are a pool's (credit_changes.cpp).
  struct credit_change : outgoing {
    credit_change(message_channel& c, message_protocol::kind k) noexcept;
    static void on_posted(outgoing& self, const failure* why) noexcept;
    message_channel& channel;
  };
  void on_grant(const frame& f);
  void on_shrink(const frame& f);
  void on_shrunk(const frame& f);
  void grow() noexcept;
  void keep_peer_to(std::uint32_t credit, std::uint32_t kept = 0) noexcept;
  /// We are asked to keep to less, and have not said to how much.
  [[nodiscard]] bool is_to_shrink() const noexcept { return least_ != 0; }
  /// That we do.
  [[nodiscard]] outgoing& shrunk() noexcept;

  // Large messages (rendezvous.cpp).
  void on_taken(const frame& f, std::optional<std::uint32_t> invalidated);
  void on_announce(arrived_message& a, const frame& f);
  void on_withdraw(const frame& f) noexcept;
  stream_message deliver_large(arrived_message& a) noexcept;
  void fetch_next() noexcept;
  void read(large_receive& l) noexcept;
  void on_read(large_receive& l) noexcept;
  void give_up(large_receive& l, errc why) noexcept;
  void answer(large_receive& l, std::uint32_t status) noexcept;
  static void on_answered(outgoing& self, const failure* why) noexcept;
  void end_large() noexcept;

  // Do not change once made.
  queue_pair* qp_;  ///< Null once it is gone; the agent goes before it.
  cordma::agent* agent_;
  executor& home_;
  mr_allocator* memory_;
  const stream_options options_;
  const order order_;
  const std::uint32_t inline_max_;
  const std::size_t read_bytes_max_;
  receive_buffers buffers_;

  stream_terms peer_;  ///< once it is open
  std::optional<failure> failed_;
  std::optional<failure> bad_frame_;       ///< why we broke it
  std::optional<event::wait_op> opening_;  ///< until the peer has told its terms
  event opened_;

  // Credits.
  std::uint32_t sent_ = message_protocol::count_first;
  std::uint32_t taken_by_peer_ = message_protocol::count_first;
  std::uint32_t received_ = message_protocol::count_first;
  std::uint32_t taken_ = message_protocol::count_first;
  std::uint32_t told_ = message_protocol::count_first;              ///< of `taken_`, to the peer
  std::uint32_t credit_frame_ = message_protocol::count_first - 1;  ///< the last that was sent
  std::uint32_t untold_credit_frames_ = 0;
  std::uint32_t unsignaled_copies_ = 0;
  /// Frames that may be under way to the peer. 0 until it has told its terms: nothing is sent
  /// before.
  std::uint32_t peer_credit_ = 0;
  std::uint32_t least_ = 0;  ///< what the peer asks us to shrink to; 0: it does not
  std::uint32_t kept_to_;    ///< what the peer's messages are kept to
  std::uint32_t grow_at_;    ///< so many of its frames that it is told nothing of
  std::uint32_t asked_ = 0;  ///< what the peer has been asked to shrink to; 0: nothing
  credit_change grant_{*this, message_protocol::kind::grant};
  credit_change shrink_{*this, message_protocol::kind::shrink};
  credit_change shrunk_{*this, message_protocol::kind::shrunk};
  struct spare_poster : waiter {
    explicit spare_poster(message_channel& c) noexcept : waiter{&on_spare}, channel{c} {}
    using list_hook<waiter>::is_linked;
    message_channel& channel;
  };
  spare_poster spare_poster_{*this};
  bool is_pumping_ = false;
  intrusive_list<outgoing> control_;
  intrusive_list<outgoing> outbox_;

  intrusive_list<arrived_message> inbox_;   ///< those that are ready, …
  intrusive_list<arrived_message> behind_;  ///< … and, in order, those from the first that is not

  std::uint64_t last_tag_ = 0;
  std::uint32_t withdrawn_ = 0;  ///< of `sends_`, what the peer has not answered
  intrusive_list<large_send> sends_;
  intrusive_list<large_receive> announced_;  ///< not fetched yet
  intrusive_list<large_receive> fetching_;
  bool is_fetching_ = false;
  bool has_gap_ = false;  ///< a message is lost: none of those behind it is delivered
  unsigned fetched_ = 0;  ///< large messages that are being fetched, or that nobody has taken

  stream_counters counters_;
};

inline channel_ref::channel_ref(message_channel& c) noexcept : channel_{&c} { c.retain(); }
inline message_channel* channel_ref::get() const noexcept {
  return static_cast<message_channel*>(channel_);
}

/// Sends a message that fits a buffer of the peer's.
class [[nodiscard]] message_channel::send_op final : public operation_base<send_op>,
                                                     public outgoing,
                                                     private suspension {
 public:
  using value_type = void;
  send_op(message_channel& channel, std::span<const std::byte> all,
          std::optional<std::uint32_t> imm) noexcept
      : suspension{&on_stop}, channel_{channel} {
    frame.kind = message_protocol::kind::data;
    bytes = all;
    immediate = imm;
    on_posted = &on_end;
  }
  bool start(waiter& w, const environment& env) noexcept;
  [[nodiscard]] bool failed() const noexcept { return why_ || was_stopped_; }
  void take() { take_result().value(); }
  result<void> take_result() noexcept {
    if (was_stopped_) return cancelled_result;
    if (why_) return *why_;
    return {};
  }

 private:
  static void on_end(outgoing& self, const failure* why) noexcept;
  static void on_stop(stop_callback& self) noexcept;

  message_channel& channel_;
  std::optional<failure> why_;
  bool was_stopped_ = false;
  bool has_ended_ = false;
};

}  // namespace cordma::detail
