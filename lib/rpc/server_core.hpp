#pragma once

#include "call_spans.hpp"
#include "encoded_message.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/rpc/server.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace cordma::rpc {

/// \errors errc::limit_exceeded: the first value out of range, with its name and limits.
void check(const server_options& options);

namespace detail {

class server_link;

/// The part of a call that is reset for the next one.
struct call_state {
  server_link* link = nullptr;
  served_method* method = nullptr;
  std::uint16_t borrowed = 0;                 ///< bits of `bulk`: what the handler asked for
  std::array<std::uint64_t, 2> borrowings{};  ///< the agent's numbers of source and sink; 0: none
  bool is_over = false;                       ///< the caller has given up, and has its memory back
  bool is_in_use = false;                     ///< requests on it were in flight when that ended
  bool is_started = false;
  bool is_counted = false;  ///< the counters have the call's outcome
  bool is_answering = false;
  bool has_span = false;
  bool* is_gone = nullptr;  ///< is set to true when the call is closed
  std::optional<time_point> until;
};

/// A call at its server. It keeps the request's receive buffer. The server uses the object again.
///
/// `server_link` moves it through these states:
///
/// | state | what moves it there |
/// | --- | --- |
/// | begun | `begin` calls `open`; the call is scheduled, unless it is refused at once |
/// | started: `is_started` | `run`; the handler runs |
/// | answering: `is_answering` | `answer`, from `finish` or `refuse` |
/// | closed: spare | `end` calls `close`; the answer is posted, or the link has ended |
///
/// While a call is answering, the answer waits for credit, or the client reads it. A caller that
/// lends memory may give up in any state, which sets `is_over`.
struct incoming_call final : list_hook<incoming_call>,
                             call_state,
                             public encoded_message,
                             public waiter,
                             public timer,
                             public frame_cache::recycled {
  incoming_call() noexcept;
  incoming_call(incoming_call&&) = delete;

  /// Takes the request, and its header.
  void open(server_link& l, arrived_message& a, const header& h) noexcept;
  void close() noexcept;

  /// Time is counted from the first call of this function: when the handler first waits.
  [[nodiscard]] time_point deadline() noexcept;

  [[nodiscard]] trace_context trace() const noexcept;

  header asked;
  stream_message request;
  std::optional<stop_source> stop{std::in_place};
  server_call context{*this};
  call_body_room room;
  call_body_ptr body{nullptr, nullptr};
  fixed_text<call_protocol::text_bytes_max> text;  ///< text of a failure
  call_span span;                                  ///< if `has_span`
};

/// The state of a `server`, which its connections share: methods, limits, counters, spare calls.
///
/// A server is serving, then draining: `drain` sets `draining_`, once. Calls that find `calls_max`
/// running stay in their link's inbox; the link waits in `starved_` until a call ends.
class server_core final {
 public:
  explicit server_core(const server_options& options);
  server_core(const server_core&) = delete;
  server_core& operator=(const server_core&) = delete;
  ~server_core();

  void add(std::unique_ptr<served_method> m);
  /// The method of that id, or null.
  [[nodiscard]] served_method* find(std::uint64_t id) const noexcept {
    const auto found = std::ranges::lower_bound(methods_, id, {}, &id_of);
    return found != methods_.end() && (*found)->id == id ? found->get() : nullptr;
  }
  task<> serve(connection conn);
  /// \param conn  the link's connection; null in tests, which have something in its place.
  task<> serve(server_link& link, connection* conn);
  task<> serve(listener& acceptor);
  task<> drain();
  [[nodiscard]] stream_counters streams() noexcept;

  server_counters counters;

 private:
  friend class server_link;
  class served_link;
  /// A link that waits until calls of other links have ended.
  struct starved_link : list_hook<starved_link> {
    explicit starved_link(server_link& l) noexcept : link{l} {}
    server_link& link;
  };
  /// A listener whose connections are served; a drain closes it.
  struct served_listener : list_hook<served_listener> {
    explicit served_listener(listener& l) noexcept : from{l} {}
    listener& from;
  };

  [[nodiscard]] bool is_full() const noexcept { return counters.running >= options_.calls_max; }
  incoming_call& begin() {
    incoming_call& c = free_.empty() ? *new incoming_call : free_.pop_front();
    ++counters.running;
    ++counters.calls;
    return c;
  }
  /// Takes back a call that is closed. A starved link may begin another.
  void end(incoming_call& c) noexcept {
    if (frame_cache::is_recycling && counters.running <= kept_max) [[likely]] {
      free_.push_front(c);
    } else {
      delete &c;
    }
    --counters.running;
    if (!starved_.empty()) [[unlikely]]
      serve_starved();
  }
  /// Lets starved links begin calls. A call that is refused calls `end`, which comes back here.
  void serve_starved() noexcept;
  static std::uint64_t id_of(const std::unique_ptr<served_method>& m) noexcept { return m->id; }

  const server_options options_;
  const std::unique_ptr<call_spans> spans_;              ///< null: no tracer
  std::vector<std::unique_ptr<served_method>> methods_;  ///< sorted by their ids
  static constexpr std::size_t kept_max = 1024;
  intrusive_list<incoming_call> free_;  ///< at most `kept_max`, the last used first
  event draining_;
  unsigned awaited_ = 0;  ///< connections that a drain waits for
  event empty_;           ///< set when `awaited_` is 0
  intrusive_list<served_listener> listeners_;
  intrusive_list<server_link> links_;
  intrusive_list<starved_link> starved_;
  bool is_serving_starved_ = false;
  stream_counters gone_;  ///< counters of connections that have ended
};

/// A server's end of one connection. Besides the channel's states it has its own, in this order:
///
/// | state | what moves it there |
/// | --- | --- |
/// | serving | `accept` begins the calls that come |
/// | turning away | `reject`, if the connection came during a drain, until the first call ends |
/// | ending | `drain` or `stop`; the link takes no more calls |
/// | finished | no call runs any more; `finished` is set |
/// | left | `leave` has ended all calls; the server knows the link no more |
class server_link final : public message_channel, public list_hook<server_link> {
 public:
  server_link(server_core& core, connection& conn) : server_link{core, resources_of(conn), &conn} {}
  server_link(server_core& core, const channel_resources& resources, connection* conn);

  [[nodiscard]] event& finished() noexcept { return finished_; }
  void drain() noexcept;
  /// Drains a connection that came during a drain: `finished` waits for one refused call.
  void reject() noexcept;
  /// Takes no more calls, and stops those that run.
  void stop() noexcept;
  /// Stops the running calls. Answers that cannot be sent at once are dropped.
  void stop_calls() noexcept;
  /// The server is done with the connection: ends all calls.
  void leave() noexcept;
  /// Begins calls from the inbox, as many as may run, once the channel is open.
  void accept() noexcept;

  [[nodiscard]] connection& conn() noexcept { return *conn_; }
  remote_mr borrow(incoming_call& c, call_protocol::bulk which);
  bool stop_using(incoming_call& c) noexcept;
  void end_loans(incoming_call& c) noexcept;
  void tell_returned(std::uint64_t call, bool is_fenced, stream_message kept = {}) noexcept;
  task<local_mr> fetch(incoming_call& c, std::size_t bytes_max);

 private:
  friend struct incoming_call;

  // Called in the middle of a reap.
  void on_message() noexcept override { accept(); }
  void on_control(std::span<const std::byte> bytes) override;
  void on_open() noexcept override { accept(); }
  void on_closed() noexcept override { stop(); }

  static inline header request_in(const arrived_message& a);
  inline void begin(arrived_message& a);
  void begin_span(incoming_call& c) noexcept;
  void end_span(incoming_call& c) noexcept;
  void cancel(incoming_call& c) noexcept;
  [[nodiscard]] bool was_cancelled(std::uint64_t call) const noexcept;
  static std::coroutine_handle<> on_step(cordma::waiter& self) noexcept;
  inline void run(incoming_call& c) noexcept;
  static void on_deadline(timer& self) noexcept;
  inline void finish(incoming_call& c) noexcept;
  void refuse(incoming_call& c, call_protocol::status why, std::string_view text) noexcept;
  void refuse_caught(incoming_call& c, call_protocol::status why) noexcept;
  inline void answer(incoming_call& c, call_protocol::kind k, std::uint32_t value,
                     const encodable_ref& what);
  static void on_sent(encoded_message& self, const std::optional<failure>& why) noexcept;
  void drop_answers() noexcept;
  void end(incoming_call& c) noexcept;
  [[nodiscard]] bool is_finished() const noexcept {
    return is_ending_ && !is_turning_away_ && running_ == 0;
  }
  void tell_if_finished() noexcept;

  server_core* core_;  ///< null: left
  connection* conn_;   ///< null only in tests
  intrusive_list<incoming_call> calls_;
  unsigned running_ = 0;
  bool is_accepting_ = false;
  bool is_ending_ = false;        ///< true in every later state, too
  bool is_turning_away_ = false;  ///< has refused no call yet
  bool is_stopping_ = false;      ///< answers wait for no credit
  server_core::starved_link starved_{*this};
  /// The last calls whose `cancel` came before their request, which is large. A ring: as many as
  /// can be announced.
  std::vector<std::uint64_t> cancelled_;
  std::size_t cancelled_oldest_ = 0;
  event finished_{executor()};
};

}  // namespace detail
}  // namespace cordma::rpc
