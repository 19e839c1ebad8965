#pragma once

#include "agent/agent.hpp"
#include "credit_account.hpp"
#include "outgoing_frame.hpp"
#include "receive_buffers.hpp"
#include "request/queue_pair.hpp"
#include "stream_terms.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/messages/message_stream.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace cordma {

/// \errors errc::limit_exceeded: the first value out of range, with its name and limits.
void check(const stream_options& options);

namespace detail {

class pending_fill;
struct large_send;

/// Owns a large message that this end sends. Dropping it withdraws the message.
struct withdraw_large {
  void operator()(large_send* s) const noexcept;
};
using large_handle = std::unique_ptr<large_send, withdraw_large>;

struct large_options {
  /// The message has ended, of which `large_send::why` says how. May drop the message. Possibly
  /// called in the middle of a reap.
  void (*on_ended)(large_send& s) noexcept;
  void* owner;  ///< for `on_ended`
  std::optional<std::uint32_t> immediate{};
  bool is_fenced = false;
  message_loans lent{};
};

/// The parts that a channel works with. Tests pass parts that stand for a connection. Everything
/// but `data` and its agent outlives the channel.
struct channel_resources {
  queue_pair& data;
  cordma::agent& agent;
  mr_allocator& memory;
  std::size_t read_bytes_max;  ///< the longest READ
};

/// Carries messages over a connection's data queue pair, with credits. A derived class gives them
/// to a `message_stream`, to a client or to a server of RPC. Frames are handled in the middle of a
/// reap. Counted by references, since messages outlive connections; the queue pair has one.
///
/// States, each moved once, in this order (`move_to` asserts it):
///   opening  the peer's terms are unknown: frames are received, none is sent.
///   open     frames go both ways. Moved by `on_opened`, when the agent has the peer's terms.
///   failed   the queue pair is in ERROR: `failed` says why, messages that arrived can still be
///            delivered. Moved by `on_failure`, from opening or open.
///   gone     the queue pair is destroyed. Moved by `on_gone`, from failed.
///
/// Files: message_channel.cpp moves the states; message_channel_send.cpp and
/// message_channel_receive.cpp handle frames; credit_changes.cpp changes the credits of a shared
/// pool; rendezvous.cpp carries large messages.
///
/// \thread the executor's. \cost for a small message: one SEND. Above `inline_max` bytes also a
/// copy in registered memory; one in 16 copies is signaled. No call of malloc.
class message_channel : public counted, public message_handler, private waiter {
 public:
  using frame = message_protocol::frame;
  /// `as_sent`: a message waits for those before it. `any`: small ones overtake large ones.
  enum class order { as_sent, any };

  /// Makes a channel of the derived class `Channel`, posts its receives and tells the peer.
  template <class Channel, class... Arguments>
  static Channel& make(Arguments&&... arguments) {
    auto* const channel = new Channel(std::forward<Arguments>(arguments)...);
    static_cast<message_channel*>(channel)->begin();
    return *channel;
  }

  // Sending.
  /// Sends a message when the peer has room for it, or another frame, which may use the reserved
  /// credits.
  void send(outgoing_frame& o) noexcept;
  static task<> send_bytes(channel_ref self, std::span<const std::byte> bytes,
                           std::optional<std::uint32_t> immediate);
  static task<> send_memory(channel_ref self, const_local_mr_slice bytes,
                            std::optional<std::uint32_t> immediate);
  /// Makes a message that goes by rendezvous, since it is longer than the peer's buffers; `send`
  /// takes it. \errors as `lender::lend_inline`; why the connection ended.
  large_handle make_large(local_mr memory, const large_options& how);

  /// \errors errc::wrong_length: longer than the peer takes.
  void check_length(std::size_t length) const;

  // Receiving.
  /// The next message of those that `on_message` announced.
  stream_message deliver() noexcept { return deliver(inbox_.front()); }
  /// The program has dropped the message: its buffer can receive again.
  void give_back(arrived_message& a) noexcept;
  /// The program has dropped a large message, which `order::any` counts until then.
  void drop_large() noexcept;
  [[nodiscard]] const_local_mr_slice slice_of(const arrived_message& a) const noexcept;
  /// Fetches or offers the next large message, if the waiting tasks or `inbox` allow that now.
  void serve_large() noexcept {
    if (!behind_.empty()) [[unlikely]]
      fetch_next();
  }

  [[nodiscard]] cordma::executor& executor() const noexcept { return executor_; }
  [[nodiscard]] bool is_open() const noexcept { return state_ == state::open; }
  /// The peer's terms, once the channel is open.
  [[nodiscard]] const stream_terms& peer() const noexcept { return peer_; }
  [[nodiscard]] mr_allocator& memory() noexcept { return *memory_; }
  [[nodiscard]] const std::optional<failure>& failed() const noexcept { return failed_; }
  [[nodiscard]] const stream_counters& counters() const noexcept { return counters_; }

 protected:
  message_channel(const channel_resources& resources, const stream_options& options, order o);
  ~message_channel() override;
  static channel_resources resources_of(connection& conn);

  // Called in the middle of a reap; none is called before `begin`.
  /// There is one more message to `deliver`.
  virtual void on_message() noexcept = 0;
  /// The bytes of a `control` frame are valid until this returns. \errors errc::bad_frame: breaks
  ///   the connection.
  virtual void on_control(std::span<const std::byte> bytes);
  virtual void on_open() noexcept {}
  /// No more messages will come; `failed` says why. Those in `inbox` can be delivered.
  virtual void on_closed() noexcept = 0;

  /// The tasks that wait for messages, as far as fetching depends on them.
  struct waiting {
    pending_fill* next_fill = nullptr;  ///< the first task's; null: it has none
    bool has_any = false;
    bool has_fills = false;
  };
  [[nodiscard]] virtual waiting waiting_tasks() noexcept { return {}; }

  void break_connection(const failure& why) noexcept;
  /// The messages that `on_message` announced.
  [[nodiscard]] intrusive_list<arrived_message>& inbox() noexcept { return inbox_; }
  /// \param a  a message in `inbox`.
  stream_message deliver(arrived_message& a) noexcept {
    a.list_hook<arrived_message>::unlink();
    ++counters_.received;
    if (a.large != nullptr) [[unlikely]]
      return deliver_large(a);
    return stream_message{channel_ref{*this}, a};
  }
  [[nodiscard]] cordma::agent* agent() noexcept { return agent_; }

 private:
  friend struct large_receive;
  friend class pending_fill;
  friend struct large_send;
  friend struct withdraw_large;
  enum class state : std::uint8_t { opening, open, failed, gone };

  void begin();
  void move_to(state next) noexcept;
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

  static task<> send_large(channel_ref self, local_mr memory,
                           std::optional<std::uint32_t> immediate);
  static std::coroutine_handle<> on_opened(waiter& self) noexcept;
  /// Waits until the channel is open.
  task<> opened();

  // Receiving (message_channel_receive.cpp).
  inline void take(arrived_message& a, const ibv_wc& wc);
  void take_other(arrived_message& a, std::span<const std::byte> bytes);
  inline void release_credits(std::uint32_t taken);
  inline bool consume(arrived_message& a) noexcept;
  /// Buffers are posted several at once. Without credits the peer cannot send what would complete
  /// a batch, so an incomplete batch is posted at the end of this event-loop iteration.
  void post_spare_soon() noexcept {
    if (!credits_.may_peer_send_message() && buffers_.has_spare() && !spare_poster_.is_linked())
        [[unlikely]]
      executor_.schedule_last(spare_poster_);
  }
  static std::coroutine_handle<> on_spare(waiter& self) noexcept;
  void announce_whole() noexcept;

  // Sending (message_channel_send.cpp).
  /// Posts what waits and can go.
  void pump() noexcept {
    if (state_ == state::open && (has_waiting() || credits_.needs_telling())) [[unlikely]]
      pump_all();
  }
  [[nodiscard]] bool has_waiting() const noexcept {
    return !outbox_.empty() || !control_.empty() || credits_.has_shrink_request();
  }
  void pump_all() noexcept;
  [[nodiscard]] outgoing_frame* next() noexcept;
  [[nodiscard]] bool lacks_room() noexcept;
  bool post_next() noexcept;
  inline bool try_post(outgoing_frame& o) noexcept;
  inline bool post(outgoing_frame& o, unsigned flags = 0);
  inline bool post_inline(outgoing_frame& o, wr_summary& message, std::size_t head_bytes) noexcept;
  bool post_copy(const outgoing_frame& o, wr_summary& message, std::size_t head_bytes);
  inline bool post_behind_binds(const outgoing_frame& o, const wr_summary& message) noexcept;
  void post_credit(unsigned flags = 0) noexcept;

  // Credits of a shared pool change (credit_changes.cpp).
  struct credit_change : outgoing_frame {
    credit_change(message_channel& c, message_protocol::kind k) noexcept;
    static void on_posted(outgoing_frame& self, const std::optional<failure>& why) noexcept;
    message_channel& channel;
  };
  struct credit_changes {
    explicit credit_changes(message_channel& c) noexcept
        : grant{c, message_protocol::kind::grant},
          shrink{c, message_protocol::kind::shrink},
          shrunk{c, message_protocol::kind::shrunk} {}
    credit_change grant, shrink, shrunk;
    std::uint32_t asked = 0;  ///< the peer was asked to shrink to this, and has not answered; or 0
  };
  void on_grant(const frame& f);
  void on_shrink(const frame& f);
  void on_shrunk(const frame& f);
  void grow() noexcept;
  void limit_peer(std::uint32_t credit, std::uint32_t occupied = 0) noexcept;
  [[nodiscard]] outgoing_frame& shrunk() noexcept;

  // Large messages (rendezvous.cpp).
  struct large_messages {
    std::uint64_t last_tag = 0;
    std::uint32_t withdrawn = 0;  ///< members of `sends` that the peer has not answered
    intrusive_list<large_send> sends;
    intrusive_list<large_receive> announced;  ///< not fetched yet
    intrusive_list<large_receive> fetching;   ///< offered, being read, or being answered
    bool is_fetching = false;                 ///< `fetch_next` runs
    bool has_gap = false;                     ///< a message is lost: none behind it is delivered
    unsigned fetched = 0;  ///< messages that are being fetched, or that nobody has taken
  };
  void on_taken(const frame& f, std::optional<std::uint32_t> invalidated);
  void on_announce(arrived_message& a, const frame& f);
  void on_withdraw(const frame& f) noexcept;
  [[nodiscard]] large_receive* find_large(std::uint64_t tag) noexcept;
  stream_message deliver_large(arrived_message& a) noexcept;
  void fetch_next() noexcept;
  void borrow(large_receive& l);
  void read(large_receive& l) noexcept;
  void on_read(large_receive& l) noexcept;
  void give_up(large_receive& l, errc why) noexcept;
  void offer_again(large_receive& l) noexcept;
  void answer(large_receive& l, std::uint32_t status) noexcept;
  static void on_answered(outgoing_frame& self, const std::optional<failure>& why) noexcept;
  void end_large() noexcept;

  // Constant once made, but for the two pointers.
  queue_pair* qp_;        ///< null: gone
  cordma::agent* agent_;  ///< null: failed
  cordma::executor& executor_;
  mr_allocator* memory_;
  const stream_options options_;
  const order order_;
  const std::uint32_t inline_max_;
  const std::size_t read_bytes_max_;
  const ibv_pd* const pd_;
  receive_buffers buffers_;

  state state_ = state::opening;
  stream_terms peer_;
  std::optional<failure> failed_;
  std::optional<failure> bad_frame_;       ///< why this side broke the connection
  std::optional<event::wait_op> opening_;  ///< waits for the peer's terms
  event opened_;                           ///< set when no longer opening

  credit_account credits_;
  std::uint32_t unsignaled_copies_ = 0;
  bool is_pumping_ = false;
  credit_changes credit_changes_{*this};
  struct spare_poster : waiter {
    explicit spare_poster(message_channel& c) noexcept : waiter{&on_spare}, channel{c} {}
    using list_hook<waiter>::is_linked;
    message_channel& channel;
  };
  spare_poster spare_poster_{*this};
  intrusive_list<outgoing_frame> control_;  ///< waits for credit or room; sent before `outbox_`
  intrusive_list<outgoing_frame> outbox_;   ///< messages that wait for credit or room

  intrusive_list<arrived_message> inbox_;   ///< ready to be delivered
  intrusive_list<arrived_message> behind_;  ///< in order, from the first that is not ready
  large_messages large_;

  stream_counters counters_;
};

}  // namespace detail
}  // namespace cordma
