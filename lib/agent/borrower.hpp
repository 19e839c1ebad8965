#pragma once

#include "agent_context.hpp"
#include "holding.hpp"
#include "id_table.hpp"
#include "inline_grant.hpp"

#include <cordma/agent/remote_mr.hpp>
#include <cordma/coro/task.hpp>

#include <optional>
#include <vector>

namespace cordma {

/// The holder's side of an agent: moves each holding from state to state, as holding.hpp lists
/// them. What moves a holding is the program, a frame (`agent`), a message, the completion
/// of a flush, a timer, or the end of the connection. \thread the executor's.
class borrower {
 public:
  using frame = agent_protocol::frame;
  using holding = detail::holding;
  /// Leases that the peer may have granted, or not yet answered for, at once.
  static constexpr std::size_t holdings_max = 65536;

  explicit borrower(agent_context& context);
  borrower(const borrower&) = delete;
  borrower& operator=(const borrower&) = delete;
  ~borrower();

  // One function for each frame of the owner's.
  [[nodiscard]] holding* find(std::uint64_t tag) const noexcept { return tags_.find(tag); }
  /// Finds a holding by the owner's number. \cost a pass over all leases.
  [[nodiscard]] holding* find_by_lease(std::uint64_t lease) const noexcept;
  void granted(holding& h, const frame& terms) noexcept;
  void refused(holding& h, const failure& why) noexcept;
  void renewed(holding& h, duration lease) noexcept;
  void handed_over(holding& h) noexcept { forget(h); }
  void revoke(holding& h) noexcept;
  /// False: `offers_max` offers wait already. \errors bad_alloc; errc::limit_exceeded.
  [[nodiscard]] bool offer(const frame& terms);

  /// Why nothing can be posted on the holding, or `errc{}`.
  [[nodiscard]] errc refusal_of(const holding& h) const noexcept {
    const errc why =
        h.block->refusal(h.block->generation(), &context_.data.sends(), verbs::access::none);
    const bool has_expired = why == errc{} && context_.executor.is_past(h.block->usable_until());
    return has_expired ? errc::lease_expired : why;
  }
  [[nodiscard]] time_point now() const noexcept { return context_.executor.now(); }

  // From our program.
  task<remote_mr> request(std::size_t size_bytes, remote_mr_request options);
  task<remote_mr> receive();
  task<> hand_over(remote_mr memory);
  static task<> renew(holding& h, time_span lease);
  void drop(holding& h) noexcept;
  /// Borrows what a message of the peer's lends, until `until` or `end_along(number)`.
  /// \errors bad_alloc; errc::limit_exceeded; why the connection ended.
  remote_mr borrow_inline(const loan_terms& terms, verbs::access access, time_point until,
                          std::uint64_t& number);
  /// Call when the next message returns this loan. True: send that message with a fence, because
  /// requests on the loan are still in flight.
  bool end_along(std::uint64_t number) noexcept;

  void fail(const failure& why) noexcept;
  void list(std::vector<lease_info>& into) const;

 private:
  holding& make(bool is_inline = false);
  void ask(holding& h, const frame& f) noexcept;
  void withdraw(holding& h) noexcept;
  void take_terms(holding& h, const frame& f) noexcept;
  void open(holding& h, time_point since) noexcept;
  [[nodiscard]] duration margin_of(duration lease) const noexcept;
  void check_request(std::size_t size_bytes, const remote_mr_request& options) const;

  void use_until(holding& h, time_point until) noexcept;
  void refuse(holding& h, errc why) noexcept;
  static void on_timer(timer& self) noexcept;
  static void on_returned(control_channel::outgoing& notice) noexcept;
  void give_back(holding& h) noexcept;
  [[nodiscard]] bool needs_flush(holding& h) const noexcept;
  void start_flush(holding& h, holding_state while_it_lasts) noexcept;
  void end_flush(holding& h) noexcept;
  void send_return(holding& h, holding_state until_sent = holding_state::returning) noexcept;
  void forget(holding& h) noexcept;
  void recycle(holding& h) noexcept;

  agent_context& context_;
  local_mr landing_;  ///< Flushes read into it, and nobody uses the bytes.
  id_table<holding> tags_;
  intrusive_list<holding> holdings_;  ///< in any state but `offered` and `ended`
  intrusive_list<holding> offers_;    ///< `offered`
  intrusive_list<holding> free_;      ///< inline ones to use again
  std::size_t offer_count_ = 0;       ///< `offered` and `declining`
  event arrival_;                     ///< set with the first of `offers_`
  std::optional<failure> failed_;
};

}  // namespace cordma
