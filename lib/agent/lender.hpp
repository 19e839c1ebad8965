#pragma once

#include "agent_context.hpp"
#include "id_table.hpp"
#include "loan_stock.hpp"

#include <cordma/agent/loan.hpp>
#include <cordma/detail/agent/inline_grant.hpp>
#include <cordma/detail/coro/frame_cache.hpp>

#include <optional>
#include <string_view>
#include <vector>

namespace cordma {

class lender;

namespace detail {

/// One lease that we granted, from the allocation of its memory to the end of the peer's access.
/// Owned by its lender; when that is done with it, by the loan, if there is one.
struct grant : waiter, list_hook<grant>, timer, frame_cache::recycled {
  enum class stage : unsigned char {
    binding,       ///< the window's bind is on the data queue pair; if inline, not yet
    open,          ///< the peer may use it; if inline, once its message comes, behind the bind
    asked,         ///< to return it; it has `grace`
    waiting,       ///< for a slot of the send queue
    invalidating,  ///< the window's end is on the data queue pair; it has `revoke_deadline`
    received,      ///< handed over to us, and waits for `receive_local_mr`
    ended,         ///< the lender has forgotten it
  };

  explicit grant(lender& l) noexcept;

  // All that one has which a message carries, together: with bulk memory its cache lines are cold
  // whenever it is met.
  lender* home;
  inline_grant* owner = nullptr;  ///< who sent it and is told that it has ended
  std::size_t size_bytes = 0;
  std::size_t cost = 0;  ///< what it takes of the policy's bytes
  time_point expires{};
  stage state = stage::binding;
  loan_end_reason reason = loan_end_reason::returned;
  verbs::access access = verbs::access::none;
  cordma::isolation isolation = isolation::exact;
  bool is_inline = false;      ///< by a message: the agents say nothing of it
  bool was_asked_for = false;  ///< by the peer; else we offered it
  bool has_loan = false;
  bool is_given_back = false;
  bool is_invalid = false;  ///< its window, by the message that gave it back
  bool is_handed_over = false;
  bool is_kept = false;              ///< its memory, for the next request
  bool end_is_wanted = false;        ///< since before it was bound
  std::optional<unsigned> question;  ///< that waits for its answer: the request, the handing over
  remote_mr_slice remote;
  lent_memory lent;
  control_channel::outgoing notice;  ///< an offer, then a revocation

  std::uint64_t id = 0;
  std::uint64_t tag = 0;  ///< the holder's, once known
  duration lease{};
  std::optional<request_op<bind_request>> bind;
  std::optional<request_op<invalidate_request>> invalidation;
  std::optional<failure> bind_failure;
  event bound;
  event ended;
};

}  // namespace detail

/// The owner's side of an agent. Thread: the executor's.
class lender {
 public:
  using frame = agent_protocol::frame;
  using grant = detail::grant;

  explicit lender(agent_context& context);
  lender(const lender&) = delete;
  lender& operator=(const lender&) = delete;
  ~lender();

  // From the peer.
  void on_request(const frame& f, unsigned slot) noexcept;
  void on_accept(const frame& f) noexcept;
  void on_renew(const frame& f, unsigned slot) noexcept;
  void on_give_back(const frame& f) noexcept;
  void on_hand_over(const frame& f, unsigned slot) noexcept;

  // From our program.
  task<loan> lend(local_mr memory, loan_options options);
  task<local_mr> receive();
  void end(grant& g, loan_end_reason why) noexcept;
  void lend_inline(inline_grant& l, local_mr memory, verbs::access access);
  void open_inline(grant& g) noexcept;
  void give_back(grant& g) noexcept;

  /// The connection has failed, and its queue pairs are in ERROR: all ends now.
  void fail(const failure& why) noexcept;
  void list(std::vector<lease_info>& into);

 private:
  void refuse(const frame& question, unsigned slot, errc why, std::uint64_t limit = 0) noexcept;
  void note_refusal(const frame& request, errc why, std::string_view because) noexcept;
  void check_request(const frame& request) const;
  void check_loan(const local_mr& memory, const loan_options& options) const;
  grant& make(std::size_t bytes, std::size_t cost, bool is_inline = false);
  [[nodiscard]] lent_memory memory_for(const frame& request);
  [[nodiscard]] bool keep(grant& g) noexcept;
  void drop_kept() noexcept;
  void prepare(grant& g, verbs::access access);
  [[nodiscard]] bind_request bind_of(const grant& g) const noexcept;
  void return_window(grant& g) noexcept;
  void lend_out(grant& g, verbs::access access, duration lease);
  [[nodiscard]] isolation isolation_for(const verbs::memory_region* arena) const;

  static std::coroutine_handle<> on_done(waiter& self) noexcept;
  static void on_timer(timer& self) noexcept;
  void on_bound(grant& g) noexcept;
  void open(grant& g) noexcept;
  void close(grant& g) noexcept;
  [[nodiscard]] bool can_invalidate() const noexcept;
  void start_invalidation(grant& g) noexcept;
  void on_invalidated(grant& g) noexcept;
  void cut(grant& g) noexcept;
  void finish(grant& g) noexcept;
  void forget(grant& g) noexcept;
  void recycle(grant& g) noexcept;
  [[nodiscard]] std::uint64_t& counter_of(loan_end_reason why) noexcept;

  friend struct detail::grant;
  friend class inline_grant;
  agent_context& context_;
  id_table<grant> ids_;
  intrusive_list<grant> grants_;    ///< open, or on their way there or back
  intrusive_list<grant> waiting_;   ///< for a slot
  intrusive_list<grant> received_;  ///< handed over to us
  intrusive_list<grant> free_;      ///< inline ones that are over
  loan_stock stock_;
  unsigned invalidating_ = 0;
  std::size_t asked_bytes_ = 0;  ///< that the peer has by asking
  event arrival_;
  std::optional<failure> failed_;
};

}  // namespace cordma
