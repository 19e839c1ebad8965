#include "chunk_store.hpp"

#include "annotations.hpp"
#include "base/failures.hpp"
#include "verbs/access.hpp"

#include <cordma/detail/base/assert.hpp>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <utility>

namespace cordma {
namespace {

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

/// Extra address space: freed chunks leave gaps into which no larger chunk fits, and addresses are
/// cheap.
constexpr std::size_t spare_factor = 4;

}  // namespace

std::size_t chunk_store::limit_possible(std::size_t wanted, std::size_t chunk_bytes) noexcept {
  const auto is_possible = [&](std::size_t limit) {
    return mapping::is_possible(rounded_up(limit, chunk_bytes) * spare_factor, chunk_bytes);
  };
  if (is_possible(wanted)) return wanted;
  // Addresses are scarce. Other allocators, stacks and queues need some, too: a quarter of what is
  // left is enough.
  while (wanted > chunk_bytes && !is_possible(4 * wanted))
    wanted = std::max(wanted / 2, chunk_bytes);
  return wanted;
}

chunk_store::chunk_store(verbs::protection_domain& pd, const mr_allocator_options& options)
    : pd_{pd},
      options_{options},
      unit_shift_{unsigned(std::countr_zero(options.chunk_bytes))},
      space_{rounded_up(options.limit_bytes, options.chunk_bytes) * spare_factor,
             options.chunk_bytes},
      by_unit_{static_cast<unit*>(std::calloc(space_.size_bytes() >> unit_shift_, sizeof(unit)))},
      next_chunk_bytes_{options.chunk_bytes} {
  if (by_unit_ == nullptr) throw std::bad_alloc{};
}

chunk_store::~chunk_store() {
  for (auto& c : chunks_) {
    chunk* const one = c.release();
    // After a refused deregistration the chunk keeps its pages, its mapping and libibverbs' record
    // of it. Its addresses must not be reused.
    if (deregister(*one))
      delete one;
    else
      space_.keep();
  }
}

void* chunk_store::take(std::size_t bytes, std::size_t alignment) noexcept {
  if (void* const at = take_of_chunks(bytes, alignment)) return at;
  const std::lock_guard growth{growth_};
  // Another thread may have registered a chunk meanwhile.
  if (void* const at = take_of_chunks(bytes, alignment)) return at;
  void* at = nullptr;
  std::optional<failure> why;
  try {
    at = grow(rounded_up(bytes, options_.chunk_bytes), bytes / page_bytes);
  } catch (const error& e) {
    why = e.failure();
  } catch (const std::bad_alloc&) {
    why = errno_failure(ENOMEM, "mr_allocator");
  }
  const std::lock_guard lock{lock_};
  refusal_ = why;
  return at;
}

void* chunk_store::take_of_chunks(std::size_t bytes, std::size_t alignment) noexcept {
  const std::lock_guard lock{lock_};
  // The newest chunk is the largest.
  for (auto c = chunks_.rbegin(); c != chunks_.rend(); ++c) {
    const std::size_t first =
        (*c)->pages.take(bytes / page_bytes, std::max(alignment / page_bytes, std::size_t{1}));
    if (first != page_bitmap::none) return (*c)->at + first * page_bytes;
  }
  return nullptr;
}

void chunk_store::give_back(void* at, std::size_t bytes) noexcept {
  chunk* const c = by_unit_[unit_of(at)].owner.load(std::memory_order_relaxed);
  CORDMA_ASSERT(c != nullptr, "memory given back that is of no chunk");
  const std::lock_guard lock{lock_};
  c->pages.give_back(std::size_t(static_cast<std::byte*>(at) - c->at) / page_bytes,
                     bytes / page_bytes);
}

/// Adds a chunk of at least `bytes` and takes its first pages; smaller than intended rather than
/// none. The caller holds `growth_`.
void* chunk_store::grow(std::size_t bytes, std::size_t pages) {
  const std::size_t registered = count().registered_bytes;
  const std::size_t room = options_.limit_bytes - registered;
  if (bytes > room) {
    detail::throw_failure(
        errc::limit_exceeded, "mr_allocator",
        detail::detail_text(
            "%zu bytes more than the %zu that are registered exceed limit_bytes, %zu", bytes,
            registered, options_.limit_bytes));
  }
  const std::size_t intended = std::max(
      bytes, std::min(next_chunk_bytes_, room / options_.chunk_bytes * options_.chunk_bytes));
  try {
    void* const first = add_chunk(intended, pages);
    next_chunk_bytes_ = std::min(2 * next_chunk_bytes_, options_.chunk_bytes_max);
    return first;
  } catch (const error&) {
    if (intended == bytes) throw;
    return add_chunk(bytes, pages);
  }
}

void* chunk_store::add_chunk(std::size_t bytes, std::size_t pages) {
  std::byte* const at = find_addresses(bytes);
  space_.commit(at, bytes, options_);
  std::unique_ptr<chunk> made;
  try {
    made.reset(new chunk{at, bytes, page_bitmap{bytes / page_bytes}, register_pages(at, bytes)});
    const std::lock_guard lock{lock_};
    chunks_.reserve(chunks_.size() + 1);
  } catch (...) {
    made.reset();
    space_.decommit(at, bytes);
    throw;
  }
  // The pages are taken before others see the chunk and could take all of it.
  made->pages.take(pages, 1);
  poison(at, bytes);
  const verbs::memory_region& mr = made->mr;
  set_owner(*made, made.get(), {mr.lkey(), verbs::is_remote(options_.access) ? mr.rkey() : 0});
  const std::lock_guard lock{lock_};
  chunks_.push_back(std::move(made));
  counts_.chunks.set(chunks_.size());
  counts_.registrations.add();
  counts_.registered_bytes.add(bytes);
  counts_.registered_bytes_peak.set(
      std::max(counts_.registered_bytes_peak.value(), counts_.registered_bytes.value()));
  return at;
}

verbs::memory_region chunk_store::register_pages(std::byte* at, std::size_t bytes) {
  try {
    return {pd_, at, bytes, options_.access};
  } catch (const error&) {
    const std::lock_guard lock{lock_};
    counts_.registrations_failed.add();
    throw;
  }
}

/// Finds free addresses. The caller holds `growth_`, which guards changes of `by_unit_`.
std::byte* chunk_store::find_addresses(std::size_t bytes) const {
  const std::size_t wanted = bytes >> unit_shift_;
  const std::size_t units = space_.size_bytes() >> unit_shift_;
  std::size_t run = 0;
  for (std::size_t n = 0; n < units; ++n) {
    run = by_unit_[n].owner.load(std::memory_order_relaxed) == nullptr ? run + 1 : 0;
    if (run == wanted) return space_.base() + ((n + 1 - wanted) << unit_shift_);
  }
  throw error{errno_failure(ENOMEM, "mr_allocator", {"bytes", bytes},
                            "no such range of addresses is left: raise limit_bytes")};
}

void chunk_store::set_owner(const chunk& c, chunk* owner, memory_keys keys) noexcept {
  for (std::size_t n = 0; n < c.bytes >> unit_shift_; ++n) {
    unit& here = by_unit_[unit_of(c.at) + n];
    here.owner.store(owner, std::memory_order_relaxed);
    here.keys.store(keys, std::memory_order_release);
  }
}

void chunk_store::trim(std::size_t keep_bytes) noexcept {
  const std::lock_guard growth{growth_};
  for (std::size_t n = chunks_.size(); n-- > 0;) {
    std::unique_ptr<chunk> free;
    {
      const std::lock_guard lock{lock_};
      const chunk& c = *chunks_[n];
      if (c.pages.free() != c.pages.size() ||
          counts_.registered_bytes.value() - c.bytes < keep_bytes)
        continue;
      // The chunk leaves the list, so that nobody takes pages while it is deregistered.
      free = std::move(chunks_[n]);
      chunks_.erase(chunks_.begin() + std::ptrdiff_t(n));
    }
    const bool gone = deregister(*free);
    const std::lock_guard lock{lock_};
    if (gone) {
      counts_.registered_bytes.subtract(free->bytes);
    } else {
      counts_.deregistrations_refused.add();
      chunks_.push_back(std::move(free));
    }
    counts_.chunks.set(chunks_.size());
  }
}

/// Deregisters a chunk. Returns false if it is refused; nothing has changed then.
bool chunk_store::deregister(chunk& c) noexcept {
  if (c.mr.deregister() != 0) return false;
  set_owner(c, nullptr, {});
  unpoison(c.at, c.bytes);
  space_.decommit(c.at, c.bytes);
  return true;
}

failure chunk_store::refusal() const {
  const std::lock_guard lock{lock_};
  return refusal_.value_or(errno_failure(ENOMEM, "mallocx"));
}

mr_allocator_counters chunk_store::count() const noexcept {
  return {.registered_bytes = counts_.registered_bytes.value(),
          .registered_bytes_peak = counts_.registered_bytes_peak.value(),
          .chunks = counts_.chunks.value(),
          .registrations = counts_.registrations.value(),
          .registrations_failed = counts_.registrations_failed.value(),
          .deregistrations_refused = counts_.deregistrations_refused.value()};
}

}  // namespace cordma
