#pragma once

#include "base/lease_witness.hpp"
#include "socket_calls.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace cordma::detail {

/// Questions to the host that a runtime is on, beside its device. The functions here ask the
/// kernel's; a simulated host overrides them. \thread the executor's.
class host_calls {
 public:
  host_calls() noexcept = default;
  host_calls(host_calls&&) = delete;

  /// Returns the host that the kernel runs on.
  static host_calls& of_kernel() noexcept;

  /// Returns the sockets that the reactor watches.
  [[nodiscard]] virtual socket_calls& sockets() noexcept;
  /// Returns all addresses of a host's name. Blocks the thread. \errors as
  /// `socket_address::resolve`.
  virtual std::vector<socket_address> resolve(const std::string& host, std::uint16_t port);
  /// Returns the addresses of this host's interfaces. \errors an errno of getifaddrs(3).
  virtual std::vector<socket_address> own_addresses();
  /// Returns the address from which packets leave for another host, port 0. \errors an errno.
  virtual socket_address address_toward(const socket_address& to);
  /// Returns a text that all processes of this host, and no others, find until the next boot.
  /// \errors an errno.
  virtual std::string boot_id();
  /// Returns true if a call that blocks is made on a thread of its own. Without threads the call is
  /// made at once, and returns at once.
  [[nodiscard]] virtual bool has_threads() const noexcept { return true; }
  /// Returns what sees the leases; null: nothing does.
  [[nodiscard]] virtual lease_witness* leases() noexcept { return nullptr; }
  /// Lets time pass and the device work, between two polls of a loop that keeps the thread.
  virtual void pause() noexcept {}

 protected:
  ~host_calls() = default;
};

}  // namespace cordma::detail
