#pragma once

namespace cordma::sim::detail {

class host_state;

/// Makes a block a step of a host. In it nothing may wait or ask the time, the kernel or threads
/// but by the runtime: clock_gettime, nanosleep, clock_nanosleep, pthread_create, getrandom and
/// getaddrinfo are findings, which name the caller. They answer by the world's time and chance.
class trap_scope {
 public:
  explicit trap_scope(host_state& host) noexcept;
  trap_scope(const trap_scope&) = delete;
  ~trap_scope();

 private:
  host_state* const outer_;
};

}  // namespace cordma::sim::detail
