#pragma once

#include "context.hpp"

#include <cordma/agent/remote_mr.hpp>
#include <cordma/connection/connection.hpp>
#include <cordma/connection/listener.hpp>
#include <cordma/memory/local_mr.hpp>

#include <optional>

namespace cordma::c {

template <class T>
using ref = detail::counted_ref<T>;

struct memory_object final : object {
  static constexpr kind is = kind::memory;
  memory_object(context& of, local_mr made) : object{of}, mr{std::move(made)} {}
  /// \errors errc::out_of_range.
  [[nodiscard]] local_mr_slice slice(std::size_t offset, std::size_t bytes) {
    return mr.slice(offset, bytes);
  }
  local_mr mr;
};

struct remote_object final : object {
  static constexpr kind is = kind::remote;
  remote_object(object& of, const remote_mr_slice& all)
      : object{of.owner}, connection{of.number}, slice{all} {}
  const handle connection;  ///< The connection whose peer has the memory.
  const remote_mr_slice slice;
  remote_mr borrowed;  ///< Empty for what the peer named itself.
};

/// The accepting that `cordma_start` began.
struct accept_run final : detail::counted {
  stop_source stop;
};

struct listener_object final : object {
  static constexpr kind is = kind::listener;
  listener_object(context& of, listener made) : object{of}, acceptor{std::move(made)} {}
  std::optional<listener> acceptor;
  cordma_accepted* accepted = nullptr;
  void* user = nullptr;
  ref<accept_run> run;  ///< From `cordma_start` until `cordma_stop`, or until accepting fails.
};

struct connection_object final : object {
  static constexpr kind is = kind::connection;
  connection_object(context& of, connection made);
  ~connection_object() override = default;

  /// Copies a message, and gives its buffer to the device again.
  /// \errors errc::wrong_length: the message is kept, and is the next one.
  void deliver(const message& next, void* into, std::size_t room, cordma_message* about);
  void repost(const message& next);

  connection link;
  std::uint32_t peer_receive_bytes = UINT32_MAX;  ///< The peer's longest message, if it said so.
  std::optional<message> kept;
  bool is_receiving = false;  ///< A `receiver` has it.
  cordma_received* received = nullptr;
  cordma_failed* failed = nullptr;
  void* user = nullptr;
};

/// The only one that takes a connection's messages, as long as it lives. Who receives by turns with
/// another would get its messages out of order.
class receiver {
 public:
  /// \errors `misuse`: a call waits for messages, or a callback has them.
  explicit receiver(connection_object& of);
  receiver(receiver&&) noexcept = default;
  receiver& operator=(receiver&&) = delete;
  ~receiver() {
    if (of_) of_->is_receiving = false;
  }
  [[nodiscard]] connection_object& of() const noexcept { return *of_.get(); }

 private:
  ref<connection_object> of_;
};

/// Returns `memory`. \errors errc::wrong_length: the peer has no room for such a message.
local_mr_slice message_of(const connection_object& to, const local_mr_slice& memory);

/// Bytes by which each side tells the other its longest message, in the handshake. A peer that is
/// no C program says nothing.
using private_bytes = std::array<std::byte, 64>;
private_bytes said_to_peers(std::uint32_t receive_bytes) noexcept;

cordma_message described(const message& m) noexcept;

}  // namespace cordma::c
