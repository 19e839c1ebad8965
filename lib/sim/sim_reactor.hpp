#pragma once

#include <cordma/detail/io/fd_watch.hpp>
#include <cordma/io/reactor.hpp>

#include <cstdint>
#include <vector>

namespace cordma::sim::detail {

class host_state;

/// The reactor of a simulated host. It never waits: the world steps the executor when something is
/// ready. Descriptors are those of completion channels, which the kernel has. \thread the world's.
class sim_reactor final : public reactor {
 public:
  explicit sim_reactor(host_state& host) noexcept : host_{host} {}
  ~sim_reactor() override;

  [[nodiscard]] const char* name() const noexcept override { return "simulation"; }
  void enable() override {}
  void watch(fd_watch& w) override;
  void unwatch(fd_watch& w) noexcept override;
  void set_alarm(time_point at) noexcept override { alarm_at_ = at; }
  void poll() noexcept override;
  void wait() noexcept override;
  void wake() noexcept override;
  [[nodiscard]] cordma::detail::host_calls& host() noexcept override;

  /// Returns true if `poll` would call something, or the alarm is due.
  [[nodiscard]] bool has_news() noexcept;
  [[nodiscard]] time_point alarm() const noexcept { return alarm_at_; }

 private:
  struct record {
    fd_watch* watch = nullptr;
    /// The device's activity when the watch last fired: an edge needs something new.
    std::uint64_t told_at = UINT64_MAX;
  };
  [[nodiscard]] bool is_ready(const record& r) const noexcept;

  host_state& host_;
  std::vector<record> records_;
  time_point alarm_at_ = time_point::max();
};

}  // namespace cordma::sim::detail
