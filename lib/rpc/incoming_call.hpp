#pragma once

#include "encoded_message.hpp"

#include <cordma/detail/coro/frame_cache.hpp>
#include <cordma/rpc/server.hpp>

#include <array>
#include <optional>

namespace cordma::rpc::detail {

class server_link;

/// What is set anew for each call.
struct call_state {
  server_link* link = nullptr;
  std::uint16_t borrowed = 0;                 ///< of the caller's memory: what was asked for, …
  std::array<std::uint64_t, 2> borrowings{};  ///< … and what is there; 0: none
  bool is_over = false;                       ///< for the caller, who has its memory back
  bool is_in_use = false;                     ///< READs of it were under way when that ended
  bool is_started = false;
  bool is_counted = false;  ///< what became of it
  bool is_answering = false;
  bool* is_gone = nullptr;  ///< is set to true when the call is closed
  std::optional<time_point> until;
};

/// A call at its server: `open` takes the request, whose receive buffer the call keeps; `close`
/// ends it once the answer is on its way. The server uses the object again. `server_link` moves it:
/// begun, started (the handler runs), answering, closed.
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

  /// The clock starts with the first call of this, which is when the handler first waits.
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

}  // namespace cordma::rpc::detail
