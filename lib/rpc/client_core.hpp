#pragma once

#include "base/random.hpp"
#include "call_spans.hpp"
#include "encoded_message.hpp"

#include <cordma/rpc/client.hpp>

#include <array>
#include <memory>
#include <optional>
#include <random>
#include <vector>

namespace cordma::rpc {

/// \errors errc::limit_exceeded: the first value out of range, with its name and limits.
void check(const client_options& options);

namespace detail {

class client_link;

/// A call at its client. `client_core` owns the slot, and uses it for one call after the other.
///
/// States, moved by `client_core`:
///   free       in `free_`. `begin` takes the slot from there.
///   waiting    in `waiting_`: there is no connection, or `calls_max` are in flight. By `start`, or
///              by `on_link_closed` when the call may run again.
///   in flight  in `in_flight_`: by `send`, from `start` or `pump`.
///   ending     in flight, and `is_ending`: the outcome is known, what the call lent is not back.
///              By `on_answer` (a reply), `give_up` (a deadline or stop) or `fail`.
///   ended      `has_ended`, in no list: by `end`, which tells the operation. `leave`, of the
///              operation's destructor, frees the slot; when that came before, `end` does.
struct call_slot final : list_hook<call_slot>,
                         public encoded_message,
                         public timer,
                         public suspension {
  call_slot(client_core& c, std::uint16_t i) noexcept;

  struct lending : inline_grant {
    explicit lending(call_slot& s) noexcept;
    call_slot& slot;
  };
  [[nodiscard]] bool may_have_run() const noexcept { return is_known(); }
  [[nodiscard]] bool is_lending() const noexcept { return loans[0] || loans[1]; }

  client_core& core;
  const std::uint16_t index;
  std::uint64_t number = 0;  ///< on the wire; each call has another
  const call_target* target = nullptr;
  // The operation owns what these point to: they dangle once the call is ending.
  const encodable_ref* request = nullptr;
  const call_options* options = nullptr;
  time_point deadline{};
  bool is_in_flight = false;
  bool has_lent = false;  ///< the request names what it lends
  bool is_ending = false;
  bool has_ended = false;
  bool is_abandoned = false;  ///< the operation is destroyed
  bool is_repeated = false;   ///< sent again, after it may have run on a connection that was lost
  bool was_stopped = false;
  bool has_context = false;  ///< the request carries `span.context`
  bool is_traced = false;    ///< the tracer waits for the end of `span`
  call_span span;
  stream_message reply;
  std::array<lending, 2> loans{{lending{*this}, lending{*this}}};  ///< source and sink
  std::optional<failure> why;                                      ///< the call has failed
};

/// The state of a `client`. The client and its calls keep it by references.
///
/// While calls wait for a connection, `connect_until_done` runs, if there is a connector. It ends
/// with a connection, or when no call waits.
class client_core final : public cordma::detail::counted, private waiter {
 public:
  client_core(cordma::executor& executor, const client_options& options, client::connector connect);

  /// \errors as `client`.
  void attach(connection conn);
  /// Attaches to a connection or, in tests, to what stands for one.
  void attach(const channel_resources& resources);
  /// Ends all calls.
  void shut() noexcept;
  task<> close();

  inline call_slot& begin(const call_target& target);
  /// Starts a call, like an operation's `start`. `options` and `request` live until the call has
  /// ended.
  inline bool start(call_slot& s, const call_options& options, const encodable_ref& request,
                    waiter& w, const environment& env) noexcept;
  inline stream_message take(call_slot& s);
  /// The operation is destroyed: frees the slot, or gives up the call.
  void leave(call_slot& s) noexcept;

  [[nodiscard]] const client_counters& counters() const noexcept { return counters_; }
  [[nodiscard]] const stream_counters& stream() const noexcept;
  [[nodiscard]] connection* conn() noexcept;
  [[nodiscard]] cordma::executor& executor() const noexcept { return executor_; }

 private:
  friend class client_link;
  friend struct call_slot;

  ~client_core() override;
  // Called by the link, in the middle of a reap.
  inline void on_answer(client_link& from);
  void on_returned(const header& h);
  void on_link_closed(const failure& why) noexcept;

  [[nodiscard]] inline call_slot* find(std::uint64_t number) noexcept;
  void pump() noexcept;
  [[nodiscard]] inline bool may_send() const noexcept;
  inline void send(call_slot& s, duration limit) noexcept;
  void lend(call_slot& s);
  static void give_back(call_slot& s, std::optional<std::uint32_t> invalidated = {}) noexcept;
  static void on_sent(encoded_message& self, const std::optional<failure>& why) noexcept;
  static void on_deadline(timer& self) noexcept;
  static void on_stop(stop_callback& self) noexcept;
  void stop(call_slot& s) noexcept;
  static void note_failure(call_slot& s, const failure& why, std::uint64_t& counted_in) noexcept;
  void give_up(call_slot& s) noexcept;
  void settle(call_slot& s) noexcept;
  void fail(call_slot& s, const failure& why, std::uint64_t& counted_in) noexcept;
  void begin_span(call_slot& s, const trace_context& parent) noexcept;
  void end_span(call_slot& s) noexcept;
  void end(call_slot& s) noexcept;
  void cancel(std::uint64_t number) noexcept;
  static void on_loan_ended(inline_grant& self) noexcept;

  void fail_waiting(const failure& why) noexcept;
  [[nodiscard]] bool can_connect() const noexcept { return connector_ != nullptr; }
  void connect() noexcept;
  task<> connect_until_done();
  static std::coroutine_handle<> on_connect_done(waiter& self) noexcept;
  [[nodiscard]] duration connect_delay() noexcept;
  void say_why_not_connected(failure& late) const noexcept;

  cordma::executor& executor_;
  const client_options options_;
  const std::unique_ptr<call_spans> spans_;  ///< null: no tracer
  std::optional<failure> shut_;
  std::optional<failure> why_lost_;
  cordma::connection conn_;
  channel_ref channel_;          ///< the last channel
  client_link* link_ = nullptr;  ///< the channel, while it works

  const client::connector connector_;  ///< null: the one connection is not replaced
  std::optional<task<>> connecting_;   ///< `connect_until_done`
  bool is_connecting_ = false;
  std::optional<failure> why_not_connected_;  ///< the last attempt's, since the last connection
  unsigned failed_attempts_ = 0;  ///< in a row, or connections on which nothing was answered
  std::minstd_rand jitter_{cordma::detail::random_value<std::uint32_t>()};

  std::vector<std::unique_ptr<call_slot>> slots_;
  intrusive_list<call_slot> free_;
  intrusive_list<call_slot> waiting_;
  intrusive_list<call_slot> in_flight_;
  unsigned in_flight_count_ = 0;
  bool is_pumping_ = false;
  event none_in_flight_{executor_};
  client_counters counters_;
};

/// A client's end of one connection. The states are the channel's; `core_` is null once the client
/// has left, or knows of the failure.
class client_link final : public message_channel {
 public:
  client_link(client_core& core, const channel_resources& resources, const stream_options& options)
      : message_channel{resources, options, order::any}, core_{&core} {}
  void leave() noexcept { core_ = nullptr; }
  [[nodiscard]] cordma::agent& lender() noexcept { return *agent(); }

 private:
  friend class client_core;
  void on_message() noexcept override;
  void on_control(std::span<const std::byte> bytes) override;
  void on_open() noexcept override;
  void on_closed() noexcept override;

  client_core* core_;  ///< null: nobody is told any more
};

}  // namespace detail
}  // namespace cordma::rpc
