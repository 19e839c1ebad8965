#pragma once

#include "id.hpp"

#include <cordma/coro/channel.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/io/socket_address.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace cordma::cm {

/// Listens for requests of RDMA_PS_TCP. Move-only. No task of `accept` may be running when it is
/// destroyed. \thread the channel's executor's.
class listener {
 public:
  /// Requests that wait for `accept`. Those that come while so many wait are refused.
  static constexpr int default_backlog = 128;

  /// Listens on `local`. With port 0 the kernel chooses; `local_address` returns the choice.
  /// \param backlog  from 1. \param when_full  what a request beyond it is told: at most
  ///   `rejection_bytes_max` bytes.
  /// \errors EADDRINUSE, EACCES (a port below 1024), EADDRNOTAVAIL (not an address of this host),
  ///   ENODEV (no RDMA device has the address).
  listener(event_channel& channel, const socket_address& local, int backlog = default_backlog,
           std::span<const std::byte> when_full = {});
  listener(listener&&) noexcept;
  listener& operator=(listener&&) noexcept;
  ~listener();

  /// Gives the next request: `from_peer` is what it says, `peer` who sent it. Destroying the id
  /// refuses it. \errors errc::closed; errc::device_failed: the device that it listened on is gone.
  task<id> accept();
  /// Refuses the requests that wait, and frees the port. Ends the waits of `accept`. Idempotent.
  void close() noexcept;

  [[nodiscard]] const socket_address& local_address() const noexcept;
  /// Returns how many requests wait for `accept`.
  [[nodiscard]] std::size_t waiting() const noexcept;
  /// Returns how many requests were refused because `backlog` others waited, or without memory.
  [[nodiscard]] std::uint64_t refused() const noexcept;

 private:
  class state;
  std::unique_ptr<state> state_;
};

}  // namespace cordma::cm
