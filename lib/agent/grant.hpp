#pragma once

#include "control_channel.hpp"
#include "inline_grant.hpp"
#include "lease_state.hpp"
#include "lending.hpp"
#include "request/queue_pair.hpp"

#include <cordma/agent/remote_mr.hpp>
#include <cordma/detail/coro/frame_cache.hpp>

#include <optional>

namespace cordma {

class lender;

/// Where one lease stands at its owner. `lender` moves it, and nobody else:
///
/// | from | to | when |
/// | --- | --- | --- |
/// | unheard | binding | the bind is posted |
/// | unheard | open | it needs no bind of its own; or the message that carries it is posted |
/// | binding | unwanted | the program wants the memory back |
/// | binding, unwanted | open | the bind has completed |
/// | open | asked | the program revokes it, or its lease is over |
/// | open, asked | waiting, invalidating | it was given back or handed over; `grace` is over |
/// | waiting | invalidating | an invalidation before it has completed |
/// | open, waiting, invalidating | received | it was handed over, and the peer's access is gone |
/// | any but ended | ended | the peer's access is gone; the bind failed; the connection ended |
/// | ended | unheard | a message is to carry terms: an inline grant is used again |
enum class grant_state : unsigned char {
  unheard,       ///< Memory is prepared. An inline grant stays here until its message is posted.
  binding,       ///< The window's bind is on the data queue pair.
  unwanted,      ///< Still binding, and the program has asked for the end already.
  open,          ///< The peer may use the memory.
  asked,         ///< The peer was asked to return the memory, and has `grace` for that.
  waiting,       ///< The window's end waits for a slot of the send queue.
  invalidating,  ///< The window's end is on the data queue pair, and has `revoke_timeout`.
  received,      ///< The peer has handed the memory over, and `receive_local_mr` may take it.
  ended,         ///< The lender has forgotten the grant. A loan may still point to it.
};

/// True if a grant may go from one state to the other.
constexpr bool can_move(grant_state from, grant_state to) noexcept {
  using enum grant_state;
  switch (from) {
    case unheard: return to == binding || to == open || to == ended;
    case binding: return to == unwanted || to == open || to == ended;
    case unwanted: return to == open || to == ended;  // `open` for no longer than a call.
    case open:
      return to == asked || to == waiting || to == invalidating || to == received || to == ended;
    case asked: return to == waiting || to == invalidating || to == ended;
    case waiting: return to == invalidating || to == received || to == ended;
    case invalidating: return to == received || to == ended;
    case received: return to == ended;
    case ended: return to == unheard;  // An inline grant is used again.
  }
  return false;
}

/// True if the peer has never been able to use the memory.
constexpr bool is_unopened(grant_state s) noexcept {
  using enum grant_state;
  return s == unheard || s == binding || s == unwanted;
}

/// A lease begins in one of three ways.
enum class grant_origin : unsigned char {
  requested,    ///< The peer asked for memory.
  offered,      ///< The program lends memory of its own.
  by_a_message  ///< A message carries the terms, and the agents send no frame about it.
};

namespace detail {

/// One lease that this end granted, from the allocation of its memory to the end of the peer's
/// access. The lender owns it until `ended`; then the loan does, if there is one.
struct grant : list_hook<grant>, timer, frame_cache::recycled {
  grant(cordma::lender& l, function on_timer, cordma::executor& on) noexcept
      : timer{on_timer}, lender{&l}, bound{on}, ended{on} {}

  [[nodiscard]] bool is_inline() const noexcept { return origin == grant_origin::by_a_message; }
  [[nodiscard]] bool was_requested() const noexcept { return origin == grant_origin::requested; }

  // The fields that an inline grant uses come first: their cache lines are cold after bulk memory
  // was used.
  cordma::lender* lender;         ///< Null once `ended`.
  inline_grant* owner = nullptr;  ///< sent the message, and hears of the end
  std::size_t size_bytes = 0;
  std::size_t cost = 0;  ///< bytes that count towards the policy
  time_point expires{};
  lease_state<grant_state> state{grant_state::unheard};
  grant_origin origin = grant_origin::requested;
  loan_end_reason reason = loan_end_reason::returned;
  verbs::access access = verbs::access::none;
  cordma::isolation isolation = isolation::exact;
  bool has_loan = false;             ///< A `loan` points here, and deletes this when it is dropped.
  bool is_handed_over = false;       ///< The memory goes to `receive_local_mr` at the end.
  std::optional<unsigned> question;  ///< slot of the frame to answer: a request, or a hand-over
  remote_mr_slice remote;
  lent_memory lent;
  control_channel::outgoing notice;  ///< the offer, later the revocation

  std::uint64_t id = 0;
  std::uint64_t tag = 0;  ///< The holder's number. 0 while the holder has told none.
  duration lease{};
  std::optional<told_request<bind_request, grant>> bind;  ///< in `binding` and `unwanted`
  std::optional<told_request<invalidate_request, grant>> invalidation;  ///< in `invalidating`
  std::optional<failure> bind_failure;  ///< Why it was never `open`.
  event bound;
  event ended;
};

}  // namespace detail
}  // namespace cordma
