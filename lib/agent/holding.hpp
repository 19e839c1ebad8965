#pragma once

#include "control_channel.hpp"
#include "lease_state.hpp"
#include "request/queue_pair.hpp"

#include <cordma/agent/remote_mr.hpp>
#include <cordma/detail/coro/frame_cache.hpp>

#include <optional>

namespace cordma {

class borrower;

/// Where one lease stands at its holder. `borrower` moves it, and nobody else:
///
/// | from | to | when |
/// | --- | --- | --- |
/// | made | asking, offered, open | the program asks; the owner offers; a message lends |
/// | asking | open | the owner grants it |
/// | offered | open | the program takes it |
/// | offered | declining | the owner revokes it |
/// | open | flushing, returning | it is dropped, revoked or over; nobody waits for it any more |
/// | open | flushing_for, flushed | the program hands it over |
/// | flushing | returning | the READ has completed |
/// | flushing_for | flushed | the READ has completed |
/// | flushing_for | flushing | the hand-over is stopped or destroyed |
/// | flushed | handing_over | the owner is asked |
/// | flushed, handing_over | returning | the hand-over is destroyed before the question is sent |
/// | returning | returned | the frame was sent, and an answer is due |
/// | all but made, ended | ended | the last frame came or was sent; the connection ended |
/// | ended | made | a message lends: an inline holding is used again |
enum class holding_state : unsigned char {
  made,          ///< The holding has a number, and nothing else.
  asking,        ///< The owner has not answered the request.
  offered,       ///< The owner has offered the memory, and the program has not taken it.
  open,          ///< The program may use the memory.
  flushing,      ///< A READ ends what was posted; then the memory goes back.
  flushing_for,  ///< A READ ends what was posted; then the memory is handed over.
  flushed,       ///< Posted requests have ended; the owner is to be asked to take the memory over.
  handing_over,  ///< The owner was asked, and has not answered.
  returning,     ///< The frame that gives the memory back waits for credit.
  declining,     ///< Returning an offer that nobody took: it still counts as one.
  returned,      ///< The memory is back, but an earlier question is not answered.
  ended,         ///< The borrower has forgotten the holding. A `remote_mr` may point to it.
};

/// True if a holding may go from one state to the other.
constexpr bool can_move(holding_state from, holding_state to) noexcept {
  using enum holding_state;
  switch (from) {
    case made: return to == asking || to == offered || to == open;
    case asking: return to == open || to == ended;
    case offered: return to == open || to == declining || to == ended;
    case open:
      return to == flushing || to == flushing_for || to == flushed || to == returning ||
             to == ended;
    case flushing: return to == returning || to == ended;
    case flushing_for: return to == flushing || to == flushed || to == ended;
    case flushed: return to == handing_over || to == returning || to == ended;
    case handing_over: return to == returning || to == ended;
    case returning: return to == returned || to == ended;
    case declining:
    case returned: return to == ended;
    case ended: return to == made;  // An inline holding is used again.
  }
  return false;
}

namespace detail {

/// One lease of the peer's memory, from the request to the frame that returns it. The borrower owns
/// it until `ended`; then the `remote_mr` does, if there is one.
struct holding : list_hook<holding>, timer, frame_cache::recycled {
  holding(cordma::borrower& b, function on_timer, cordma::executor& on) noexcept
      : timer{on_timer}, borrower{&b}, answered{on}, flush_ended{on} {
    notice.of = this;
  }
  ~holding() {
    if (block != nullptr) block->release();
  }

  cordma::borrower* borrower;  ///< Null once `ended`.
  std::uint64_t tag = 0;
  std::uint64_t lease = 0;  ///< the owner's number
  lease_block* block = nullptr;
  remote_mr_slice remote;
  cordma::isolation isolation = isolation::exact;
  bool has_handle = false;  ///< A `remote_mr` points here, and deletes this when it is dropped.
  bool is_inline = false;   ///< A message carried the terms, and another one ends it.
  errc status{};  ///< the reason that the return tells the owner: `lease_expired`, or none
  lease_state<holding_state> state{holding_state::made};

  // The question that the owner was asked, one at a time, in whatever state.
  bool is_asking = false;
  time_point asked_at{};
  std::optional<failure> refusal;
  event answered;                      // Set in the middle of a reap.
  control_channel::outgoing question;  ///< The frame stays; its duration becomes what was granted.

  std::optional<told_request<read_request<1>, holding>>
      flush;  ///< in `flushing` and `flushing_for`
  event flush_ended;
  struct : control_channel::outgoing {
    holding* of = nullptr;
  } notice;  ///< the acceptance, later the return
};

}  // namespace detail
}  // namespace cordma
