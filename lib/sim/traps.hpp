#pragma once

namespace cordma::sim::detail {

class host_state;

/// Makes a block a step of a host, which may wait and ask the time by the runtime only. The calls
/// clock_gettime, gettimeofday, time, nanosleep, clock_nanosleep, sleep, usleep, pthread_create,
/// getrandom, getentropy, getaddrinfo and std::random_device are findings that name the caller.
/// They answer by the world's time and chance.
class trap_scope {
 public:
  explicit trap_scope(host_state& host) noexcept;
  trap_scope(const trap_scope&) = delete;
  ~trap_scope();

 private:
  host_state* const outer_;
};

}  // namespace cordma::sim::detail
