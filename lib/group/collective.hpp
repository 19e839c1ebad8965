#pragma once

#include "agent/inline_grant.hpp"
#include "collective_call.hpp"
#include "exchange.hpp"
#include "group_frame.hpp"
#include "world.hpp"

#include <cordma/coro/stop.hpp>
#include <cordma/detail/queue/posted_requests.hpp>
#include <cordma/memory/local_mr.hpp>

#include <cstdint>
#include <optional>
#include <span>

namespace cordma::detail {

class collective;
class group_context;

/// A message that this rank receives in an operation. The operation owns it.
///
/// States:
///   posted    by `collective::post`: waits for an eager frame.
///   linking   by `post`, when the message is large: waits for a link to the peer.
///   offered   by `offer`: its memory is lent to the peer, which answers once.
///   answered  by `on_answer`: the peer has written, or will not. Its access is being taken away.
///   deleted   by `end`, which tells the transfer. A message by tag that the peer let go of fails
///             alone; of an operation, with all others.
struct inbound final : list_hook<inbound>,
                       outgoing_frame,
                       inline_grant,
                       link_wait,
                       frame_cache::recycled {
  inbound(collective& of, incoming& m) noexcept;
  void on_link() noexcept override;

  collective& op;
  incoming* transfer;  ///< null: destroyed before its end
  const std::uint32_t peer;
  const std::uint32_t step;
  const local_mr_slice memory;
  bool is_offered = false;
  bool is_answered = false;
  bool is_released = false;  ///< answered: the peer will not write

  /// Returns false once the peer's part is done, and only this side's device has to end the loan.
  [[nodiscard]] bool needs_peer() const noexcept { return !is_answered || is_released; }
};

/// A message that this rank sends in an operation. The operation owns it.
///
/// States:
///   stalled   by `collective::post`: an eager message, for which the peer's group has no credit.
///   sending   by `send_eager`: waits for the link, and for credit there.
///   waiting   by `post`: a large message, for which the peer has offered no memory yet.
///   writing   by `write`: WRITEs are under way, one after the other.
///   telling   by `tell_written`: the frame that follows the last WRITE waits for credit. Possibly
///             before that WRITE has ended.
///   deleted   by `end`, which tells the transfer.
struct outbound final : list_hook<outbound>, outgoing_frame, frame_cache::recycled {
  outbound(collective& of, outgoing& m) noexcept;

  collective& op;
  outgoing* transfer;  ///< null: destroyed before its end
  const std::uint32_t peer;
  const std::uint32_t step;
  const const_local_mr_slice memory;
  loan_terms offered{};
  std::size_t posted_bytes = 0;  ///< bytes of WRITEs that are posted
  bool is_writing = false;
  bool is_posting = false;  ///< the next WRITE is given to the send queue
  bool is_told = false;     ///< the frame that follows the last WRITE is posted
  counted_ref<rank_link> link;
  std::optional<told_request<write_request<1>, outbound>> writing;

  /// Returns false once the peer may have all that it needs, and only the device has to tell so.
  [[nodiscard]] bool needs_peer() const noexcept { return !is_told; }
};

/// One operation under way on this rank: the `exchange` of its algorithm, over links. The messages
/// by tag of a group are an operation, too, which has no end.
///
/// An operation is begun by `group_context`, and fails once, by `fail`. It is settled when it has
/// no message any more: then nobody touches the program's memory, and `group_context` deletes it.
/// \thread the executor's.
class collective final : public exchange,
                         public list_hook<collective>,
                         private waiter,
                         public frame_cache::recycled {
 public:
  collective(group_context& g, std::uint64_t number, const group_protocol::signature& call,
             const reducer* reduction) noexcept;
  ~collective();
  using list_hook<collective>::unlink;

  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] const group_protocol::signature& call() const noexcept { return call_; }
  [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }
  /// Ends all transfers; `stopped`: the operation was stopped, and gives `cancelled`.
  void fail(const failure& why, bool stopped = false) noexcept;

  // exchange.
  [[nodiscard]] const host_map* hosts() const noexcept override;
  [[nodiscard]] result<void> why() const noexcept override;
  void post(incoming& message) noexcept override;
  void post(outgoing& message) noexcept override;
  void withdraw(transfer& message) noexcept override;
  local_mr_slice scratch(std::size_t size_bytes) override;
  void copy(const local_mr_slice& into, const const_local_mr_slice& from) override;
  void combine(const local_mr_slice& into, const const_local_mr_slice& left,
               const const_local_mr_slice& right) override;

  // Frames of the peer `from`, a rank of the group. \errors errc::bad_frame.
  void on_eager(std::uint32_t from, const group_protocol::frame& f,
                std::span<const std::byte> bytes);
  void on_offer(std::uint32_t from, const group_protocol::frame& f);
  void on_answer(std::uint32_t from, const group_protocol::frame& f,
                 std::optional<std::uint32_t> invalidated);
  /// The group has a credit for an eager message that waits for one.
  void send_eager(outbound& o) noexcept;

  [[nodiscard]] rank_peer& peer_of(std::uint32_t rank) const noexcept;
  /// Ends a message that no memory was offered for; otherwise it goes on.
  void let_go(outgoing& message) noexcept;
  [[nodiscard]] std::uint32_t messages() const noexcept { return messages_; }
  /// Returns true if one of the messages needs that rank still. A rank's word that it leaves may
  /// overtake its device's acknowledgement of the last WRITE.
  [[nodiscard]] bool waits_for(std::uint32_t rank) noexcept;
  /// Makes the operation fail, and delete itself once it is settled. Its task is gone.
  void abandon(const failure& why) noexcept;
  [[nodiscard]] bool is_settled() const noexcept { return messages_ == 0; }
  /// Waits until the operation is settled. A stop does not end the wait.
  class settling;
  [[nodiscard]] settling settled() noexcept;
  [[nodiscard]] bool is_by_tag() const noexcept {
    return number_ == group_protocol::tagged_operation;
  }

 private:
  friend struct inbound;
  struct scratch_block;
  static void on_loan_ended(inline_grant& self) noexcept;
  static void on_offer_sent(outgoing_frame& self, const std::optional<failure>& why) noexcept;
  static void on_eager_sent(outgoing_frame& self, const std::optional<failure>& why) noexcept;
  static void on_told(outgoing_frame& self, const std::optional<failure>& why) noexcept;
  static void on_written(outbound& o) noexcept;
  void end_write(outbound& o, bool is_refused) noexcept;
  bool deliver_early(inbound& in);
  void offer(inbound& in) noexcept;
  void deliver(inbound& in, const group_protocol::frame& f, std::span<const std::byte> bytes);
  void write(outbound& o, const loan_terms& where) noexcept;
  void write_next(outbound& o) noexcept;
  void tell_written(outbound& o) noexcept;
  void end(inbound& in) noexcept;
  void end(outbound& o) noexcept;
  void end_failed(inbound& in) noexcept;
  void end_failed(outbound& o) noexcept;
  void settle() noexcept;
  void disagree(std::uint32_t from, const group_protocol::frame& f, std::size_t length) noexcept;
  [[nodiscard]] group_protocol::frame frame_of(group_protocol::kind k, std::uint32_t step,
                                               std::size_t length) const noexcept;

  group_context& group_;
  const std::uint64_t number_;
  const group_protocol::signature call_;
  const reducer* const reduction_;
  intrusive_list<inbound> inbounds_;
  intrusive_list<outbound> outbounds_;
  intrusive_list<early_frame> early_;  ///< frames of messages that are not posted yet
  intrusive_list<scratch_block> scratch_;
  bool has_failed_ = false;
  bool was_stopped_ = false;
  std::uint32_t messages_ = 0;       ///< in `inbounds_` and `outbounds_`
  counted_ref<group_context> kept_;  ///< set: nobody waits for the end
  bool is_seen_out_ = false;         ///< `see_out` waits for it, in the closer
  static std::coroutine_handle<> on_settled(waiter& self) noexcept;
  void keep() noexcept;
  static task<> see_out(collective& c);
  settling* settling_ = nullptr;
  std::optional<failure> why_;
};

class [[nodiscard]] collective::settling : public operation_base<settling>, private suspension {
 public:
  using value_type = void;
  explicit settling(collective& c) noexcept : suspension{nullptr}, op_{c} {}
  settling(settling&&) = delete;
  ~settling() {
    if (is_waiting()) op_.settling_ = nullptr;
  }
  bool start(waiter& w, const environment& env) noexcept {
    if (op_.is_settled()) return true;
    op_.settling_ = this;
    begin(w, {env.scheduler, {}});
    return false;
  }
  [[nodiscard]] bool failed() const noexcept { return false; }
  void take() noexcept {}
  result<void> take_result() noexcept { return {}; }

 private:
  friend class collective;
  collective& op_;
};

}  // namespace cordma::detail
