#pragma once

#include <cordma/detail/io/fd_watch.hpp>
#include <cordma/io/executor.hpp>

#include <optional>

namespace cordma::test {

/// Waits by turning a clock to the alarm: tests with timers take no time. Knows no descriptors.
class fake_reactor final : public reactor {
 public:
  explicit fake_reactor(manual_clock& clock) noexcept : clock_{clock} {}

  [[nodiscard]] const char* name() const noexcept override { return "fake"; }
  void enable() override {}
  void watch(fd_watch&) override {}
  void unwatch(fd_watch&) noexcept override {}
  void set_alarm(time_point at) noexcept override {
    alarm_ = at;
    ++alarms_set;
  }
  void poll() noexcept override {
    if (alarm_ && *alarm_ <= clock_.now()) fire();
  }
  void wait() noexcept override {
    CORDMA_ASSERT(alarm_.has_value(), "this would wait for ever");
    if (*alarm_ > clock_.now()) clock_.advance(*alarm_ - clock_.now());
    fire();
  }
  void wake() noexcept override { ++wakes; }

  std::size_t alarms_set = 0;
  std::size_t wakes = 0;

 private:
  void fire() noexcept {
    alarm_.reset();
    alarm_fired_ = true;
  }
  manual_clock& clock_;
  std::optional<time_point> alarm_;
};

/// An executor on such a clock.
struct fake_time {
  manual_clock clock;
  fake_reactor* reactor = nullptr;
  executor exec;

  fake_time() : fake_time{std::make_unique<fake_reactor>(clock)} {}

 private:
  explicit fake_time(std::unique_ptr<fake_reactor> mine)
      : reactor{mine.get()}, exec{{.clock = &clock, .reactor = std::move(mine)}} {}
};

}  // namespace cordma::test
