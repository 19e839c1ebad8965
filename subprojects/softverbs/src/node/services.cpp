#include "node/node.hpp"

#include <sys/epoll.h>

#include <algorithm>

namespace softverbs {

bool node::attach(node_service& one) noexcept {
  if (abandoned()) return false;
  for (std::uint16_t n = 0; n < services_max; ++n) {
    attached& entry = services_[n];
    const std::lock_guard lock{entry.busy};
    if (entry.service.load() != nullptr) continue;
    if (!watch(epoll_.get(), one.descriptor(), EPOLLIN, {source::service, n})) return false;
    entry.service.store(&one);
    wake_engine();  // The service may have a deadline.
    return true;
  }
  return false;
}

void node::detach(node_service& one) noexcept {
  if (abandoned()) return;  // The engine, which may have held `busy`, is not there.
  for (attached& entry : services_) {
    if (entry.service.load() != &one) continue;
    const std::lock_guard lock{entry.busy};
    entry.service.store(nullptr);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, one.descriptor(), nullptr);
  }
}

/// An event may be older than the service that has the entry now: run() then finds nothing.
void node::serve(attached& entry, bool is_ready) noexcept {
  if (entry.service.load() == nullptr) return;
  const std::lock_guard lock{entry.busy};
  node_service* const one = entry.service.load();
  if (one == nullptr) return;
  if (const clock::time_point now = clock::now(); is_ready || one->deadline() <= now) one->run(now);
}

void node::serve_due() noexcept {
  for (attached& entry : services_) serve(entry, false);
}

clock::time_point node::next_service() noexcept {
  clock::time_point next = clock::time_point::max();
  for (attached& entry : services_) {
    if (entry.service.load() == nullptr) continue;
    const std::lock_guard lock{entry.busy};
    if (const node_service* one = entry.service.load()) next = std::min(next, one->deadline());
  }
  return next;
}

void node::abandon_services() noexcept {
  for (attached& entry : services_)
    if (node_service* one = entry.service.exchange(nullptr)) one->abandon();
}

}  // namespace softverbs
