#pragma once

#include "attributes.hpp"
#include "cm_event.hpp"
#include "event_channel.hpp"

#include <cordma/base/time.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/detail/base/callback.hpp>
#include <cordma/io/socket_address.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace cordma::cm {

class id_state;

/// An event that may come to a connection at any time.
enum class notice : unsigned char {
  ended,          ///< `why_ended` says why: the peer disconnected or is gone, or the device is.
  timewait_over,  ///< No packet of the connection is in the network any more (IBTA 12.9.8.2).
};

/// One connection by rdma_cm, of a queue pair that the program made (rdma_cm(7)). Move-only.
/// Destroying it at any step leaves nothing: it refuses a request, and ends a connection.
///
/// The connecting side: `resolve`, `connect` (the queue pair in INIT, with receives posted),
/// `rtr` and `rts` with `verbs::queue_pair`, `establish`. The listening side, with an id of
/// `listener::accept`: the queue pair to INIT, RTR and RTS, `accept`, `established`; or `reject`.
///
/// A task may be stopped or destroyed at any time. A step that was stopped cannot be repeated:
/// destroy the id. No task of the id may be running when it is destroyed. Spans live until the
/// call, or the awaited task, ends. \thread the channel's executor's.
class id {
 public:
  static constexpr std::chrono::seconds resolve_timeout{2};

  /// Empty: only destruction and assignment are allowed.
  id() noexcept;
  /// \errors an errno of rdma_create_id(3).
  explicit id(event_channel& channel);
  id(id&&) noexcept;
  id& operator=(id&&) noexcept;
  ~id();

  /// Finds the device, the address of the next hop and the path. `limit` is for each of the two
  /// steps. Where the daemon ibacm runs, librdmacm asks it for the path, and the thread waits.
  /// \errors ENODEV, EHOSTUNREACH, ETIMEDOUT, …: name the address and the way out.
  task<> resolve(socket_address to, std::optional<socket_address> from = std::nullopt,
                 time_span limit = resolve_timeout);
  /// Sends the request, with at most `request_bytes_max` bytes of `data`, and ends when the peer
  /// has accepted: `from_peer` is its reply. rdma_cm gives up after a minute or so: use
  /// `with_timeout`.
  /// \errors errc::refused: `from_peer` has the bytes of the refusal. ECONNREFUSED: nobody listens
  ///   there. ETIMEDOUT: no answer. errc::limit_exceeded: too much `data`.
  task<> connect(std::uint32_t qpn, std::span<const std::byte> data, parameters own);
  /// Tells the peer that the queue pair is ready. \errors errc::disconnected: the peer is gone.
  void establish();

  /// Answers a request; the queue pair is in RTS. Asks for no more than the peer offers.
  /// \param data  at most `reply_bytes_max` bytes.
  /// \errors errc::limit_exceeded: too much `data`. EINVAL: the peer is gone, or `own` exceeds the
  ///   device's limits.
  void accept(std::uint32_t qpn, std::span<const std::byte> data, const parameters& own);
  /// Ends when the peer's queue pair is ready. \errors ETIMEDOUT, errc::refused,
  /// errc::disconnected.
  task<> established();
  /// Returns true for a request that is neither accepted nor rejected, and has not ended.
  [[nodiscard]] bool awaits_answer() const noexcept;
  /// Refuses a request, with at most `rejection_bytes_max` bytes of `data`.
  /// \errors errc::limit_exceeded: too much `data`. EINVAL: the peer is gone.
  void reject(std::span<const std::byte> data);

  /// Ends the connection; the peer is told. Does nothing if there is none.
  void disconnect() noexcept;
  /// Sets what is called at each notice. `told` may destroy any id, also this one. An end that came
  /// before shows in `why_ended` alone.
  void on_notice(callback<void(notice)> told) noexcept;
  [[nodiscard]] const std::optional<failure>& why_ended() const noexcept;

  /// Returns the peer's last message.
  [[nodiscard]] const peer_message& from_peer() const noexcept;
  /// The device and port that `resolve` found, or on which the request came.
  [[nodiscard]] std::string_view device_name() const noexcept;
  [[nodiscard]] std::uint8_t port() const noexcept;
  [[nodiscard]] socket_address local() const noexcept;
  [[nodiscard]] socket_address peer() const noexcept;

  /// Attributes for the queue pair. `init`: after `resolve`, or of a request. `rtr`, `rts`: after
  /// `connect`, or of a request. `own` is that of `connect` or `accept`.
  /// \errors an errno of rdma_init_qp_attr(3): EINVAL: the connection has ended.
  [[nodiscard]] init_attributes init() const;
  [[nodiscard]] verbs::rtr_attributes rtr(const parameters& own) const;
  [[nodiscard]] verbs::rts_attributes rts(const parameters& own) const;

  /// Makes a request that is neither accepted nor rejected one of another channel, whose thread
  /// then uses it. \errors an errno of rdma_migrate_id(3); the id is then as it was.
  void move_to(event_channel& other);

 private:
  friend class listener;
  /// A request. \errors std::bad_alloc.
  id(event_channel& channel, owned_id request, const peer_message& message);

  std::unique_ptr<id_state> state_;
};

}  // namespace cordma::cm
