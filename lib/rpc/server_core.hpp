#pragma once

#include "encoded_message.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/rpc/server.hpp>

#include <array>
#include <memory>
#include <vector>

namespace cordma::rpc::detail {

class server_link;

/// What is known of a call.
struct call_state {
  server_link* link = nullptr;
  std::uint16_t borrowed = 0;                 ///< of the caller's memory: what was asked for, …
  std::array<std::uint64_t, 2> borrowings{};  ///< … and what is there; 0: none
  bool is_over = false;                       ///< for the caller, who has its memory back
  bool is_in_use = false;                     ///< READs of it were under way when that ended
  bool is_started = false;
  bool is_counted = false;  ///< what became of it
  bool is_answering = false;
  bool* is_gone = nullptr;  ///< where to say so
  std::optional<time_point> until;
};

/// A call, from when its request is taken, by `open`, until its answer is on its way and it is
/// closed. It keeps the request's receive buffer. Then it is one of its server's for another.
struct incoming_call final : list_hook<incoming_call>,
                             call_state,
                             public encoded_message,
                             public waiter,
                             public timer,
                             public frame_cache::recycled {
  incoming_call() noexcept;
  incoming_call(incoming_call&&) = delete;

  /// With the message and its header.
  void open(server_link& l, arrived_message& a, const header& h) noexcept;
  void close() noexcept;

  /// Its clock starts when it is first looked at, which is when the handler first waits.
  [[nodiscard]] time_point deadline() noexcept;

  header asked;
  loan_terms first_lent;  ///< by the request, if it lends: the answer can end that
  stream_message request;
  std::optional<stop_source> stop{std::in_place};
  server_call context{*this};
  call_body_room room;
  call_body_ptr body;
  fixed_text<call_protocol::text_bytes_max> text;  ///< of a refusal
};

/// What the connections of a server share.
class server_core final {
 public:
  explicit server_core(const server_options& options);
  server_core(const server_core&) = delete;
  server_core& operator=(const server_core&) = delete;
  ~server_core();

  void add(std::unique_ptr<served_method> m);
  [[nodiscard]] inline served_method* find(std::uint64_t id) const noexcept;
  task<> serve(connection conn);
  /// Of that connection, or, in tests, of what stands for one: null.
  task<> serve(server_link& link, connection* conn);
  task<> serve(listener& door);
  task<> drain();
  [[nodiscard]] stream_counters streams() noexcept;

  server_counters counters;

 private:
  friend class server_link;
  class visit;
  /// A link's place among those that wait for others' calls to end.
  struct turn : list_hook<turn> {
    explicit turn(server_link& l) noexcept : link{l} {}
    server_link& link;
  };

  task<> serve_and_count(connection conn);
  [[nodiscard]] bool is_full() const noexcept { return counters.running >= options_.calls_max; }
  inline incoming_call& begin();
  /// It is closed: others may begin.
  inline void end(incoming_call& c) noexcept;

  const server_options options_;
  std::vector<std::unique_ptr<served_method>> methods_;  ///< by their ids
  static constexpr std::size_t kept_max = 1024;
  intrusive_list<incoming_call> free_;  ///< As many as there were at once, the last one first.
  event draining_;
  unsigned awaited_ = 0;  ///< connections, but for those that came during a drain
  event empty_;           ///< there are none
  intrusive_list<server_link> links_;
  intrusive_list<turn> starved_;
  bool is_feeding_ = false;
  stream_counters gone_;  ///< of connections that have ended
};

/// A server's end of one connection.
class server_link final : public message_channel, public list_hook<server_link> {
 public:
  class finished_op;

  server_link(server_core& core, connection& conn) : server_link{core, resources_of(conn), &conn} {}
  server_link(server_core& core, const channel_resources& resources, connection* conn);

  /// Ends once the connection has, or is to be closed, and no call runs. A stop does not end it,
  /// but the calls.
  finished_op finished() noexcept;
  void drain() noexcept;
  /// The same, of one that came too late: it is finished once a call has been told so.
  void turn_away() noexcept;
  /// Those that run are to end, and their answers go only if they can at once: the client need not
  /// take any more.
  void stop_calls() noexcept;
  /// The server is done with it: its calls go.
  void leave() noexcept;
  /// Takes up what has come, as far as it may, once it is known what the client takes.
  void accept() noexcept;

  [[nodiscard]] connection& conn() noexcept { return *conn_; }
  remote_mr borrow(incoming_call& c, call_protocol::bulk which);
  bool stop_using(incoming_call& c) noexcept;
  void end_loans(incoming_call& c) noexcept;
  void tell_returned(std::uint64_t call, bool is_fenced, stream_message kept = {}) noexcept;
  task<local_mr> fetch(incoming_call& c, std::size_t bytes_max);

 private:
  friend struct incoming_call;

  // In the middle of a reap.
  void on_message() noexcept override { accept(); }
  void on_control(std::span<const std::byte> bytes) override;
  void on_open() noexcept override { accept(); }
  void on_closed() noexcept override;

  static inline header request_in(const arrived_message& a);
  inline void begin(arrived_message& a);
  void cancel(incoming_call& c) noexcept;
  [[nodiscard]] bool was_cancelled(std::uint64_t call) const noexcept;
  static std::coroutine_handle<> on_step(cordma::waiter& self) noexcept;
  inline void run(incoming_call& c) noexcept;
  static void on_deadline(timer& self) noexcept;
  inline void finish(incoming_call& c) noexcept;
  void refuse(incoming_call& c, call_protocol::status why, std::string_view text) noexcept;
  inline void answer(incoming_call& c, call_protocol::kind k, std::uint32_t value,
                     const encodable_ref& what);
  static void on_sent(encoded_message& self, const failure* why) noexcept;
  void drop_answers() noexcept;
  void end(incoming_call& c) noexcept;
  [[nodiscard]] bool is_finished() const noexcept {
    return is_ending_ && !is_turning_away_ && running_ == 0;
  }
  void tell_if_finished() noexcept;

  server_core* core_;  ///< null: it has left
  connection* conn_;   ///< null only in tests
  intrusive_list<incoming_call> calls_;
  unsigned running_ = 0;
  bool is_accepting_ = false;
  bool is_ending_ = false;        ///< takes no more calls
  bool is_turning_away_ = false;  ///< and has refused none yet
  bool is_stopping_ = false;      ///< and waits for none of the client's credits
  server_core::turn turn_{*this};
  /// The last calls that were cancelled and not here, as many as can be announced: large ones may
  /// come yet.
  std::vector<std::uint64_t> cancelled_;
  std::size_t cancelled_oldest_ = 0;
  finished_op* waiting_ = nullptr;
};

class [[nodiscard]] server_link::finished_op final : public operation_base<finished_op>,
                                                     private suspension {
 public:
  using value_type = void;
  explicit finished_op(server_link& l) noexcept : suspension{&on_stop}, link_{l} {}
  finished_op(finished_op&&) = delete;
  ~finished_op() { link_.waiting_ = nullptr; }

  bool start(cordma::waiter& w, const environment& env) noexcept;
  [[nodiscard]] bool failed() const noexcept { return was_stopped_; }
  void take() { take_result().value(); }
  result<void> take_result() noexcept {
    if (was_stopped_) return cancelled_result;
    return {};
  }

 private:
  friend class server_link;
  static void on_stop(stop_callback& self) noexcept;
  server_link& link_;
  bool was_stopped_ = false;
};

}  // namespace cordma::rpc::detail
