#include "queue/event_queue.hpp"

#include "queue/event_subject.hpp"

namespace softverbs {

namespace {

/// The object that an event is about; null for those of the port and the device.
const void* element_of(const ibv_async_event& event) noexcept {
  return visit_subject(event, [](const void* subject) { return subject; });
}

}  // namespace

void async_event_queue::push(const ibv_async_event& event) {
  const std::lock_guard lock{mutex_};
  if (const void* element = element_of(event); element != nullptr) popped_.try_emplace(element, 0);
  events_.push_back(event);
  tokens_.put();
}

int async_event_queue::pop(ibv_async_event& event) {
  for (;;) {
    if (!tokens_.take()) return -1;
    const std::lock_guard lock{mutex_};
    if (!tokens_.spend()) continue;  // The object of the event was destroyed meanwhile.
    event = events_.front();
    events_.pop_front();
    if (const auto found = popped_.find(element_of(event)); found != popped_.end()) ++found->second;
    return 0;
  }
}

std::uint32_t async_event_queue::forget(const void* element) noexcept {
  const std::lock_guard lock{mutex_};
  const auto dropped =
      std::erase_if(events_, [&](const auto& event) { return element_of(event) == element; });
  for (auto left = dropped; left > 0; --left) tokens_.withdraw();
  const auto found = popped_.find(element);
  if (found == popped_.end()) return 0;
  const std::uint32_t count = found->second;
  popped_.erase(found);
  return count;
}

}  // namespace softverbs
