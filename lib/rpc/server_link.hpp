#pragma once

#include "server_core.hpp"

#include <vector>

namespace cordma::rpc::detail {

/// A server's end of one connection. Besides the channel's states it is, in this order:
///   serving       `accept` begins the calls that come.
///   turning away  only when the connection came during a drain: `turn_away` moves it there, and
///   the
///                 end of the first call moves it on.
///   ending        takes no more calls: by `drain`, `on_closed`, or a stop of `finished`.
///   finished      ending, and no call runs: `finished` ends.
///   left          `leave` has ended all calls: the server knows the link no more.
class server_link final : public message_channel, public list_hook<server_link> {
 public:
  class finished_op;

  server_link(server_core& core, connection& conn) : server_link{core, resources_of(conn), &conn} {}
  server_link(server_core& core, const channel_resources& resources, connection* conn);

  /// An operation that ends when the link is finished. A stop of it stops the calls, and it still
  /// ends when they have.
  finished_op finished() noexcept;
  void drain() noexcept;
  /// Drains a connection that came during a drain: `finished` waits for one refused call.
  void turn_away() noexcept;
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
  void refuse_caught(incoming_call& c, call_protocol::status why) noexcept;
  inline void answer(incoming_call& c, call_protocol::kind k, std::uint32_t value,
                     const encodable_ref& what);
  static void on_sent(encoded_message& self, const failure* why) noexcept;
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
  bool is_ending_ = false;        ///< or later
  bool is_turning_away_ = false;  ///< has refused no call yet
  bool is_stopping_ = false;      ///< answers wait for no credit
  server_core::starved_link starved_{*this};
  /// The last calls whose `cancel` came before their request, which is large. A ring: as many as
  /// can be announced.
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
