#pragma once

#include "encoded_message.hpp"

#include <cordma/detail/coro/frame_cache.hpp>
#include <cordma/rpc/server.hpp>

#include <array>
#include <optional>

namespace cordma::rpc::detail {

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
  bool is_counted = false;  ///< its outcome is in the counters
  bool is_answering = false;
  bool* is_gone = nullptr;  ///< is set to true when the call is closed
  std::optional<time_point> until;
};

/// A call at its server. It keeps the request's receive buffer. The server uses the object again.
///
/// States, moved by `server_link`:
///   begun      `open`, by `begin`: scheduled, unless it is refused at once.
///   started    `is_started`, by `run`: the handler runs.
///   answering  `is_answering`, by `answer` (from `finish` or `refuse`): the answer waits for
///   credit,
///              or is read by the client.
///   closed     `close`, by `end`: the answer is posted, or the link has ended. Spare.
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

  header asked;
  loan_terms first_lent;  ///< the first of the caller's loans, which the answer can end
  stream_message request;
  std::optional<stop_source> stop{std::in_place};
  server_call context{*this};
  call_body_room room;
  call_body_ptr body;
  fixed_text<call_protocol::text_bytes_max> text;  ///< of a failure
};

}  // namespace cordma::rpc::detail
