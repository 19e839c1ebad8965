#pragma once

#include "agent_context.hpp"
#include "grant.hpp"
#include "grant_memory.hpp"
#include "id_table.hpp"

#include <cordma/agent/remote_mr.hpp>
#include <cordma/coro/task.hpp>

#include <optional>
#include <vector>

namespace cordma {

/// The owner's side of an agent: moves each grant from state to state, as grant.hpp lists them.
/// Grants are moved by the program, a frame (`agent`), a message (`inline_grant`), a completion on
/// the data queue pair, a timer, or the connection's end. \thread the executor's.
class lender {
 public:
  using grant = detail::grant;

  /// `lending_policy::leases_max` is at most this. A program may change the policy of one peer.
  static constexpr unsigned leases_limit = 1 << 20;

  explicit lender(agent_context& context);
  lender(const lender&) = delete;
  lender& operator=(const lender&) = delete;
  ~lender();

  // The requests of the holder's frames.
  [[nodiscard]] grant* find(std::uint64_t lease) const noexcept { return ids_.find(lease); }
  /// \errors why the request is to be refused; bad_alloc. Answers it otherwise, now or later.
  void grant_request(const agent_protocol::frame& request, unsigned slot);
  /// The lease runs from now on. Its holder's number is `tag`.
  void accept(grant& g, std::uint64_t tag) noexcept;
  /// Makes an open lease last for `lease` at least.
  void renew(grant& g, duration lease) noexcept;
  /// The holder uses the memory no more, and may have invalidated the window by a message.
  void give_back(grant& g, bool window_is_invalid = false) noexcept;
  /// The holder gives an open lease back for the program, and is told in `slot` when that is done.
  void hand_over(grant& g, unsigned slot) noexcept;

  // From our program.
  task<loan> lend(local_mr memory, loan_options options);
  task<local_mr> receive();
  /// Asks the holder for the memory, if it has any.
  void end(grant& g, loan_end_reason why) noexcept;
  /// Lends memory by a message with `l.terms()` that the caller posts on the data queue pair,
  /// behind the bind that `l` may need. \errors as `lend`; errc::limit_exceeded: the queue has no
  /// room for a message and what it lends, of which there may be `inline_grant::per_message_max`.
  void lend_inline(inline_grant& l, local_mr memory, verbs::access access);
  /// The message that carries the terms has been posted.
  void open_inline(grant& g) noexcept;
  [[nodiscard]] bind_request bind_of(const grant& g) const noexcept { return memory_.bind_of(g); }

  /// The connection has failed, and its queue pairs are in ERROR: all ends now.
  void fail(const failure& why) noexcept;
  void list(std::vector<lease_info>& into);

 private:
  void check_loan(const local_mr& memory, const loan_options& options) const;
  grant& make(std::size_t bytes, std::size_t cost, grant_origin origin);
  void forget_on_error(grant& g, auto act);
  void start(grant& g, verbs::access access, duration lease);

  static void on_timer(timer& self) noexcept;
  void on_bound(grant& g) noexcept;
  void answer(grant& g, const agent_protocol::frame& f) noexcept;
  void witness(const grant& g) const noexcept;
  void expire(grant& g) noexcept;
  void open(grant& g) noexcept;
  void rearm(grant& g, time_point expires) noexcept;
  void close(grant& g, bool window_is_invalid = false) noexcept;
  [[nodiscard]] bool can_invalidate() const noexcept;
  void start_invalidation(grant& g) noexcept;
  void on_invalidated(grant& g) noexcept;
  void cut(grant& g) noexcept;
  void log_end(const grant& g) const noexcept;
  void forget(grant& g, bool is_kept = false) noexcept;
  void recycle(grant& g) noexcept;

  friend class inline_grant;
  agent_context& context_;
  grant_memory memory_;
  id_table<grant> ids_;
  intrusive_list<grant> grants_;    ///< in any state up to `invalidating`, but for `waiting`
  intrusive_list<grant> waiting_;   ///< in that state
  intrusive_list<grant> received_;  ///< in that state
  intrusive_list<grant> free_;      ///< inline ones to use again
  unsigned invalidating_ = 0;       ///< grants in that state
  event arrival_;                   ///< set with the first of `received_`
  std::optional<failure> failed_;
};

}  // namespace cordma
