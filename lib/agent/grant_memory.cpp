#include "grant_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

namespace cordma {

void refuse_to_lend(errc why, const char* because) {
  throw error{{.code = why, .call = "lend", .detail = because}};
}

void grant_memory::reserve(std::size_t cost) {
  while (!context_.lending.reserve(cost, context_.options.lending)) {
    if (kept_.empty())
      refuse_to_lend(errc::limit_exceeded,
                     "more than lending_policy::total_bytes_max or total_leases_max");
    drop_oldest();
  }
}

lent_memory grant_memory::find(std::size_t size_bytes, std::size_t alignment) {
  const auto found = std::find_if(kept_.rbegin(), kept_.rend(), [&](const lent_memory& piece) {
    const auto address = reinterpret_cast<std::uintptr_t>(piece.memory.bytes().data());
    return piece.memory.size_bytes() == size_bytes && address % alignment == 0;
  });
  if (found != kept_.rend()) {
    lent_memory again = take(std::prev(found.base()));
    context_.lending.release(size_bytes);
    std::memset(again.memory.bytes().data(), 0, size_bytes);
    return again;
  }
  // Kept memory counts towards what the peer may have.
  while (context_.counters.bytes_kept > left_bytes()) drop_oldest();
  for (;;) {
    try {
      return {.memory = context_.memory.allocate_zeroed(size_bytes, alignment)};
    } catch (const error&) {
      if (kept_.empty()) throw;
      drop_all();  // The allocator may lack just this memory.
    }
  }
}

/// The window is invalid by now, and the registration alone grants the peer nothing. Two kinds are
/// not kept: memory that an alignment made larger, and what exceeds the peer's share.
bool grant_memory::keep(grant& g) noexcept {
  if (g.isolation != isolation::exact_registered || !g.was_requested() || g.is_handed_over ||
      !g.lent.registration || g.lent.window || g.cost != g.size_bytes ||
      g.size_bytes > kept_bytes_max || context_.counters.bytes_kept > left_bytes())
    return false;
  if (kept_.size() == kept_max) drop_oldest();
  kept_.push_back(std::move(g.lent));  // `prepare` has made room.
  context_.counters.bytes_kept += g.size_bytes;
  return true;
}

lent_memory grant_memory::take(std::vector<lent_memory>::iterator at) noexcept {
  lent_memory taken = std::move(*at);
  kept_.erase(at);
  context_.counters.bytes_kept -= taken.memory.size_bytes();
  return taken;
}

void grant_memory::drop_oldest() noexcept {
  lent_memory oldest = take(kept_.begin());
  const std::size_t bytes = oldest.memory.size_bytes();
  if (oldest.registration->deregister() != 0) {
    ++context_.counters.stranded;
    context_.log_lease(event_log::kind::memory_kept, bytes, {});
    context_.lending.strand(std::move(oldest));
  }
  context_.lending.release(bytes);
}

void grant_memory::drop_all() noexcept {
  while (!kept_.empty()) drop_oldest();
}

isolation grant_memory::isolation_for(const verbs::memory_region* arena) const {
  const lending_policy& policy = context_.options.lending;
  if (context_.has_own_domain) return isolation::shared_key;
  isolation level =
      std::min(context_.lending.strongest(context_.executor, context_.port, context_.gid),
               policy.isolation_max);
  const bool can_be_bound =
      arena != nullptr && verbs::allows(arena->flags(), verbs::access::mw_bind);
  if (level == isolation::exact && !can_be_bound) level = isolation::exact_registered;
  if (level >= policy.isolation_min && level != isolation::shared_key) return level;
  char text[100];
  std::snprintf(text, sizeof text, "isolation %s is needed, and %s the best here",
                to_string(policy.isolation_min), to_string(level));
  refuse_to_lend(errc::not_supported, text);
}

void grant_memory::prepare(grant& g, verbs::access access) {
  using enum verbs::access;
  g.access = access;
  const local_mr_slice memory = g.lent.memory.slice();
  // Such memory is the program's own: something else may be at its address by now.
  if (memory.block()->is_device_only() && memory.block()->generation() != memory.generation())
    refuse_to_lend(errc::stale_slice, "the memory was invalidated");
  const verbs::memory_region* region = memory.block()->registration();
  g.isolation = isolation_for(region);
  if (g.lent.registration) {
    region = &*g.lent.registration;
  } else if (g.isolation != isolation::exact) {
    // The reservation lets `keep` do without new memory.
    if (g.isolation == isolation::exact_registered && g.was_requested()) kept_.reserve(kept_max);
    const auto own = memory.block()->access() & local_write;
    const auto flags = own | (g.isolation == isolation::shared_key ? access : mw_bind);
    g.lent.registration.emplace(context_.lending.domain(), memory.bytes().data(), g.size_bytes,
                                flags);
    region = &*g.lent.registration;
  }
  const bool from_zero = context_.options.lending.zero_based;
  const auto address = from_zero ? 0 : reinterpret_cast<std::uint64_t>(memory.bytes().data());
  if (g.isolation == isolation::shared_key) {
    g.remote = {address, g.size_bytes, region->rkey()};
    return;
  }
  g.lent.window.emplace(context_.lending.take_window());
  g.remote = {address, g.size_bytes, g.lent.window->next_rkey()};
}

bind_request grant_memory::bind_of(const grant& g) const noexcept {
  const const_local_mr_slice kept = g.lent.memory.slice();
  // The slice is made anew: the owner of memory that is only kept may have freed it meanwhile.
  const const_local_mr_slice memory{kept.bytes().data(), kept.size_bytes(), kept.lkey(),
                                    *kept.block()};
  const verbs::memory_region& region =
      g.lent.registration ? *g.lent.registration : *memory.block()->registration();
  const bool from_zero = context_.options.lending.zero_based;
  return cordma::bind(*g.lent.window, region, memory,
                      from_zero ? g.access | verbs::access::zero_based : g.access);
}

void grant_memory::return_window(grant& g) noexcept {
  if (!g.lent.window) return;
  context_.lending.give_back(std::move(*g.lent.window));
  g.lent.window.reset();
}

bool grant_memory::take_back(grant& g) noexcept {
  bool is_kept = false;
  int rc = 0;
  if (g.lent.window) {
    rc = g.lent.window->deallocate();
    if (rc == 0) g.lent.window.reset();
  }
  if (rc == 0 && g.lent.registration) {
    is_kept = keep(g);
    if (!is_kept) {
      rc = g.lent.registration->deregister();
      if (rc == 0) g.lent.registration.reset();
    }
  }
  if (rc != 0) {
    ++context_.counters.stranded;
    context_.log_lease(event_log::kind::memory_kept, g.size_bytes, {});
    context_.lending.strand(std::exchange(g.lent, {}));
  }
  return is_kept;
}

}  // namespace cordma
