#include "sim_reactor.hpp"

#include "host_state.hpp"

#include <softverbs/simulation.h>

#include <poll.h>

#include <algorithm>

namespace cordma::sim::detail {

sim_reactor::~sim_reactor() {
  for (const record& r : records_)
    if (r.watch != nullptr) r.watch->abandoned();
}

void sim_reactor::watch(fd_watch& w) {
  const auto unused = std::ranges::find(records_, nullptr, &record::watch);
  w.key = std::uint32_t(unused - records_.begin());
  if (unused == records_.end()) records_.emplace_back();
  records_[w.key] = {.watch = &w};
}

void sim_reactor::unwatch(fd_watch& w) noexcept { records_[w.key] = {}; }

bool sim_reactor::is_ready(const record& r) const noexcept {
  if (r.watch == nullptr || r.told_at == host_.activity()) return false;
  if (r.watch->fd() >= sim_sockets::first_fd)
    return (host_.sockets().events_of(r.watch->fd()) &
            (short(r.watch->events()) | POLLERR | POLLHUP | POLLNVAL)) != 0;
  return softverbs_is_readable(host_.device(), r.watch->fd()) == 1;
}

bool sim_reactor::has_news() noexcept {
  if (alarm_at_ <= host_.now()) return true;
  return std::ranges::any_of(records_, [this](const record& r) { return is_ready(r); });
}

void sim_reactor::poll() noexcept {
  if (alarm_at_ <= host_.now()) {
    alarm_at_ = time_point::max();
    alarm_fired_ = true;
  }
  // A call may end any watch, and begin others.
  for (std::size_t n = 0; n < records_.size(); ++n) {
    if (!is_ready(records_[n])) continue;
    fd_watch& w = *records_[n].watch;
    records_[n].told_at = host_.activity();
    if (w.kind() == watch_kind::once) records_[n] = {};
    w.fired();
  }
}

void sim_reactor::wait() noexcept {
  CORDMA_ASSERT(false, "the executor of a simulated host is stepped, and never waits");
}

void sim_reactor::wake() noexcept { host_.wake(); }

cordma::detail::host_calls& sim_reactor::host() noexcept { return host_.calls(); }

}  // namespace cordma::sim::detail
