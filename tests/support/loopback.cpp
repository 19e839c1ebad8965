#include "support/loopback.hpp"

#include "support/device.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>

namespace cordma::test {

loopback::loopback(const loopback_options& options)
    : ctx{device_name()},
      port{ctx.active_port()},
      executor{{.clock = options.clock}},
      pd{ctx},
      capabilities{options.capabilities},
      min_rnr_timer{options.min_rnr_timer},
      driver{executor, ctx, options.cq},
      events{executor, ctx},
      a{make_queue_pair(capabilities)},
      b{make_queue_pair(capabilities)} {
  events.add(driver);
  if (options.connected) connect(*a, *b);
}

std::unique_ptr<queue_pair> loopback::make_queue_pair(const verbs::queue_pair_capabilities& wanted,
                                                      shared_receives* pool) {
  return std::make_unique<queue_pair>(driver, pd, wanted, port.message_max_bytes, pool);
}

void loopback::connect(callback_queue_pair& one, callback_queue_pair& other) {
  test::connect(ctx, port, one.verbs(), other.verbs().num(), min_rnr_timer);
  test::connect(ctx, port, other.verbs(), one.verbs().num(), min_rnr_timer);
}

void loopback::reconnect() {
  a.reset();
  b.reset();
  a = make_queue_pair(capabilities);
  b = make_queue_pair(capabilities);
  connect(*a, *b);
}

mr_allocator& loopback::allocator(verbs::access access) {
  for (const auto& one : allocators)
    if (one->access() == access) return *one;
  return *allocators.emplace_back(
      std::make_unique<mr_allocator>(pd, mr_allocator_options{.access = access}));
}

local_mr loopback::pattern(std::size_t size_bytes, unsigned seed) {
  local_mr mr = memory(size_bytes);
  std::uint64_t word = seed * 2654435761u + 1;
  const std::span<std::byte> bytes = mr.bytes();
  for (std::size_t at = 0; at < bytes.size(); at += sizeof word) {
    word = word * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(&bytes[at], &word, std::min(sizeof word, bytes.size() - at));
  }
  return mr;
}

void loopback::too_late() { throw std::runtime_error{"what was waited for did not come"}; }

bool same_bytes(std::span<const std::byte> one, std::span<const std::byte> other) noexcept {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace cordma::test
