#pragma once

#include "server.hpp"

#include <sys/types.h>

namespace perf {

/// A server in a process of its own, for one client. A process rather than a thread, as it is
/// between machines: nothing is shared but the device, and each side's processor time is its own.
/// Forked: make it before the first thread and the first device. Killed when it is destroyed, or
/// its parent dies.
class local_server {
 public:
  explicit local_server(server_options options);
  local_server(const local_server&) = delete;
  local_server& operator=(const local_server&) = delete;
  ~local_server();

  /// Gives the port once the server listens. \errors std::runtime_error: why it could not.
  [[nodiscard]] std::uint16_t port();

 private:
  pid_t pid_ = -1;
  int from_child_ = -1;
};

}  // namespace perf
