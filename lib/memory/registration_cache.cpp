#include "registration_cache.hpp"

#include <functional>
#include <iterator>
#include <utility>

namespace cordma {

registration_cache::entry* registration_cache::covering(std::span<const std::byte> memory,
                                                        bool is_writable) noexcept {
  index& all = index_of(is_writable);
  // The last one that begins early enough ends last.
  auto at = all.upper_bound(memory.data());
  if (at == all.begin()) return nullptr;
  entry& e = *(--at)->second;
  if (memory.data() + memory.size() > e.end()) return nullptr;
  all_.splice(all_.begin(), all_, at->second);
  return &e;
}

local_mr registration_cache::hold(entry& e, std::span<const std::byte> memory) {
  const auto offset = std::size_t(memory.data() - e.begin());
  local_mr part = local_mr::keep(e.memory.slice(offset, memory.size()));
  part.rkey_ = e.memory.rkey_;
  return part;
}

std::optional<local_mr> registration_cache::find(std::span<const std::byte> memory,
                                                 bool is_writable, bool peers_write) {
  entries gone;
  const std::lock_guard lock{mutex_};
  entry* found = is_writable || !peers_write ? covering(memory, true) : nullptr;
  if (found == nullptr && !is_writable) found = covering(memory, false);
  if (found != nullptr) {
    count_.hits.add();
    return hold(*found, memory);
  }
  count_.misses.add();
  make_room_for(memory.size(), gone);
  return std::nullopt;
}

bool registration_cache::has_room_for(std::size_t bytes) const noexcept {
  return all_.size() < limits_.registrations && bytes <= limits_.bytes &&
         count_.bytes.value() <= limits_.bytes - bytes;
}

void registration_cache::make_room_for(std::size_t bytes, entries& gone) noexcept {
  if (bytes > limits_.bytes || has_room_for(bytes)) return;
  // Held entries stay: without enough room beside them, idle ones would go for nothing.
  std::size_t held_bytes = 0;
  for (const entry& e : all_)
    if (!e.is_idle()) held_bytes += e.memory.size_bytes();
  if (held_bytes > limits_.bytes - bytes) return;
  for (auto at = all_.end(); at != all_.begin() && !has_room_for(bytes);) {
    --at;
    if (!at->is_idle()) continue;
    count_.evictions.add();
    at = drop(at, gone);
  }
}

registration_cache::entries::iterator registration_cache::drop(entries::iterator at,
                                                               entries& gone) noexcept {
  count_.bytes.subtract(at->memory.size_bytes());
  if (at->is_found) index_of(at->is_writable).erase(at->begin());
  const auto next = std::next(at);
  gone.splice(gone.begin(), all_, at);
  return next;
}

/// Takes from the index what a new registration covers. Holders keep theirs.
void registration_cache::supersede(const entry& by, entries& gone) noexcept {
  index& all = index_of(by.is_writable);
  for (auto at = all.lower_bound(by.begin()); at != all.end() && at->second->end() <= by.end();) {
    const entries::iterator covered = (at++)->second;
    if (covered->is_idle()) {
      drop(covered, gone);
    } else {
      all.erase(covered->begin());
      covered->is_found = false;
      all_.splice(all_.end(), all_, covered);  // The first to go when room is needed.
    }
  }
}

local_mr registration_cache::add(local_mr fresh, bool is_writable) {
  entries gone, made;
  const std::span<const std::byte> memory = std::as_const(fresh).bytes();
  entry& e = made.emplace_back(entry{std::move(fresh), is_writable});
  const std::lock_guard lock{mutex_};
  // Another thread may have registered the same memory meanwhile.
  if (entry* const other = covering(memory, is_writable); other != nullptr) {
    gone.splice(gone.begin(), made);
    return hold(*other, memory);
  }
  if (!has_room_for(memory.size())) return admit_guest(std::move(e.memory));
  supersede(e, gone);
  index_of(is_writable).emplace(memory.data(), made.begin());
  all_.splice(all_.begin(), made);
  count_.bytes.add(memory.size());
  return hold(e, memory);
}

local_mr registration_cache::admit_guest(local_mr memory) {
  std::erase_if(guests_, [](const guest& one) { return one.has_ended(); });
  guests_.push_back({memory.slice()});
  return memory;
}

std::size_t registration_cache::invalidate(std::span<const std::byte> range) noexcept {
  if (range.empty()) return 0;
  const auto overlaps = [&](std::span<const std::byte> memory) {
    const std::less<> before;
    return before(memory.data(), range.data() + range.size()) &&
           before(range.data(), memory.data() + memory.size());
  };
  entries gone;
  std::size_t held = 0;
  const std::lock_guard lock{mutex_};
  for (auto at = all_.begin(); at != all_.end();) {
    const bool ends = overlaps(at->memory.slice().bytes());
    if (ends && !at->is_idle()) ++held;
    at = ends ? drop(at, gone) : std::next(at);
  }
  for (const guest& one : guests_)
    if (overlaps(one.memory.bytes()) && one.block().revoke(one.memory.generation())) ++held;
  return held;
}

bool registration_cache::trim() noexcept {
  entries gone;
  const std::lock_guard lock{mutex_};
  for (auto at = all_.begin(); at != all_.end();)
    at = at->is_idle() ? drop(at, gone) : std::next(at);
  return !gone.empty();
}

}  // namespace cordma
