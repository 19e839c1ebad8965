#pragma once

#include "agent_context.hpp"
#include "id_table.hpp"

#include <cordma/agent/remote_mr.hpp>
#include <cordma/detail/agent/inline_grant.hpp>
#include <cordma/detail/coro/frame_cache.hpp>

#include <optional>
#include <vector>

namespace cordma {

class borrower;

namespace detail {

/// One lease of the peer's memory, from the request to the frame that returns it. Owned by its
/// borrower; when that is done with it, by the `remote_mr`, if there is one.
struct holding : waiter, list_hook<holding>, timer, frame_cache::recycled {
  enum class stage : unsigned char {
    asking,     ///< the owner has not answered
    offered,    ///< nobody has taken it yet
    open,       ///< to be used
    flushing,   ///< what was posted ends, before it goes back or is handed over
    flushed,    ///< the owner is told that it is handed over
    returning,  ///< the frame that gives it back waits for credit
    returned,   ///< but a question is still open
    ended,      ///< the borrower has forgotten it
  };

  explicit holding(borrower& b) noexcept;
  ~holding();

  borrower* home;
  std::uint64_t tag = 0;
  std::uint64_t lease = 0;  ///< the owner's number
  lease_block* block = nullptr;
  remote_mr_slice remote;
  cordma::isolation isolation = isolation::exact;
  bool has_handle = false;
  bool is_inline = false;  ///< by a message, with which it ends: there is nothing to return
  bool is_offer = false;   ///< not taken, and counted until its return is on its way
  bool is_for_hand_over = false;
  bool has_expired = false;

  stage state = stage::asking;
  // The question that the owner was asked, one at a time.
  bool is_asking = false;
  agent_protocol::frame asked;
  time_point asked_at{};
  std::optional<failure> refusal;
  event answered;  // Set in the middle of a reap.
  control_channel::outgoing question;

  std::optional<request_op<read_request<1>>> flush;
  event flush_ended;
  struct : control_channel::outgoing {
    holding* of = nullptr;
  } notice;  ///< the acceptance, then the return
};

}  // namespace detail

/// The holder's side of an agent. Thread: the executor's.
class borrower {
 public:
  using frame = agent_protocol::frame;
  using holding = detail::holding;
  /// Leases that the peer may have granted us, or not yet answered for, at once.
  static constexpr std::size_t holdings_max = 65536;

  borrower(agent_context& context, remote_mr_slice flush_word);
  borrower(const borrower&) = delete;
  borrower& operator=(const borrower&) = delete;
  ~borrower();

  // From the peer. \errors errc::bad_frame: what no owner says.
  void on_granted(const frame& f);
  void on_refused(const frame& f);
  void on_offer(const frame& f, unsigned slot);
  void on_renewed(const frame& f);
  void on_handed_over(const frame& f);
  void on_revoke(const frame& f) noexcept;

  [[nodiscard]] errc refusal_of(const holding& h) const noexcept {
    const errc why =
        h.block->refusal(h.block->generation(), &context_.data.sends(), verbs::access::none);
    const bool has_expired = why == errc{} && context_.home.is_past(h.block->usable_until());
    return has_expired ? errc::lease_expired : why;
  }
  [[nodiscard]] time_point now() const noexcept { return context_.home.now(); }

  // From our program.
  task<remote_mr> request(std::size_t size_bytes, remote_mr_request options);
  task<remote_mr> receive();
  task<> hand_over(remote_mr memory);
  task<> renew(holding& h, std::chrono::milliseconds lease);
  void drop(holding& h) noexcept;
  remote_mr borrow_inline(const loan_terms& terms, verbs::access access, time_point until,
                          std::uint64_t& number);
  bool end_along(std::uint64_t number) noexcept;

  void fail(const failure& why) noexcept;
  void list(std::vector<lease_info>& into) const;

 private:
  holding& make(bool is_inline = false);
  void ask(holding& h, const frame& f) noexcept;
  holding& answered(const frame& f, agent_protocol::kind question);
  void check_terms(const frame& asked, const frame& granted) const;
  void take_terms(holding& h, const frame& f) noexcept;
  void accept(holding& h) noexcept;
  void open(holding& h, time_point since) noexcept;
  [[nodiscard]] duration margin_of(duration lease) const noexcept;
  void check_request(std::size_t size_bytes, const remote_mr_request& options) const;

  static std::coroutine_handle<> on_flushed(waiter& self) noexcept;
  static void on_timer(timer& self) noexcept;
  static void on_returned(control_channel::outgoing& notice) noexcept;
  void revoke(holding& h) noexcept;
  void give_back(holding& h) noexcept;
  [[nodiscard]] bool needs_flush(holding& h) const noexcept;
  void start_flush(holding& h) noexcept;
  void end_flush(holding& h) noexcept;
  void send_return(holding& h) noexcept;
  void forget(holding& h) noexcept;
  void recycle(holding& h) noexcept;

  friend struct detail::holding;
  agent_context& context_;
  const remote_mr_slice flush_word_;
  local_mr landing_;  ///< of flushes: nobody looks at it
  id_table<holding> tags_;
  intrusive_list<holding> holdings_;
  intrusive_list<holding> offers_;  ///< not yet taken
  intrusive_list<holding> free_;    ///< inline ones that are over
  std::size_t offer_count_ = 0;     ///< those, and those that were revoked and are not yet returned
  event arrival_;
  std::optional<failure> failed_;
};

}  // namespace cordma
