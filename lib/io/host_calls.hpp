#pragma once

#include "socket_calls.hpp"

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

 protected:
  ~host_calls() = default;
};

}  // namespace cordma::detail
