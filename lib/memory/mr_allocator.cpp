#include <cordma/memory/mr_allocator.hpp>

#include "annotations.hpp"
#include "base/failures.hpp"
#include "chunk_store.hpp"
#include "descriptor_mapping.hpp"
#include "registered_arena.hpp"
#include "registration_cache.hpp"
#include "thread_caches.hpp"
#include "verbs/access.hpp"

#include <cordma/detail/base/assert.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

namespace cordma {
namespace {

using detail::detail_text;

[[noreturn]] void throw_out_of_range(fixed_text<240> why) {
  detail::throw_failure(errc::out_of_range, "mr_allocator", why);
}

void check_chunk(const char* name, std::size_t bytes) {
  if (std::has_single_bit(bytes) && bytes >= mr_allocator::chunk_bytes_min) return;
  throw_out_of_range(detail_text("%s %zu: a power of two from %zu is needed", name, bytes,
                                 mr_allocator::chunk_bytes_min));
}

std::size_t memory_of_machine() noexcept {
  return std::size_t(::sysconf(_SC_PHYS_PAGES)) * std::size_t(::sysconf(_SC_PAGESIZE));
}

mr_allocator_options checked(mr_allocator_options options) {
  check_chunk("chunk_bytes", options.chunk_bytes);
  check_chunk("chunk_bytes_max", options.chunk_bytes_max);
  if (options.chunk_bytes_max < options.chunk_bytes) {
    throw_out_of_range(detail_text("chunk_bytes_max %zu is less than chunk_bytes %zu",
                                   options.chunk_bytes_max, options.chunk_bytes));
  }
  if (options.limit_bytes == 0) {
    const std::size_t most =
        std::clamp(memory_of_machine(), options.chunk_bytes, mr_allocator::limit_bytes_max);
    options.limit_bytes = chunk_store::limit_possible(most, options.chunk_bytes);
  }
  if (options.limit_bytes > mr_allocator::limit_bytes_max) {
    throw_out_of_range(detail_text("limit_bytes %zu: at most %zu", options.limit_bytes,
                                   mr_allocator::limit_bytes_max));
  }
  if (verbs::allows(options.access, verbs::access::zero_based))
    throw_out_of_range("access zero_based: slices name addresses");
  if (options.limit_bytes < options.chunk_bytes) {
    throw_out_of_range(detail_text("limit_bytes %zu is less than one chunk, %zu",
                                   options.limit_bytes, options.chunk_bytes));
  }
  if (options.numa_node) check_numa_node(*options.numa_node);
  return options;
}

}  // namespace

class [[gnu::visibility("hidden")]] mr_allocator::state {
 public:
  state(verbs::protection_domain& pd, const mr_allocator_options& wanted)
      : options{checked(wanted)},
        pd_{pd},
        chunks_{pd, options},
        arena_{chunks_},
        caches_{arena_.flags(),
                options.thread_caches,
                {pd.native_handle(), options.access, &release, this, &registration}},
        cache_{{options.cached_registrations_max, options.cached_bytes_max}} {}
  ~state() {
    cache_.trim();
    CORDMA_ASSERT(caches_.in_use_bytes() == 0,
                  "an allocator was destroyed while memory of it is in use");
    CORDMA_ASSERT(external_bytes_.load() == 0,
                  "an allocator was destroyed while memory that it registered is in use");
  }

  local_mr allocate(std::size_t size, std::size_t alignment);
  /// Registers memory of the program's own, for the whole access or for reading only.
  local_mr register_external(std::span<const std::byte> memory, bool is_writable,
                             std::shared_ptr<void> keepalive, bool is_cached = false);
  local_mr register_dmabuf(int fd, std::uint64_t offset, std::size_t size);
  local_mr register_cached(std::span<const std::byte> memory, bool is_writable);
  std::size_t invalidate(std::span<const std::byte> range) noexcept {
    return cache_.invalidate(range);
  }
  void trim(std::size_t keep_bytes);
  [[nodiscard]] mr_allocator_counters counters() const noexcept;
  [[nodiscard]] std::size_t in_use_bytes() const noexcept { return caches_.in_use_bytes(); }

  const mr_allocator_options options;

 private:
  struct external {
    std::shared_ptr<void> keepalive;  // Destroyed after the registration.
    verbs::memory_region mr;
    state& from;
  };

  memory_block& divide(thread_cache& cache, std::size_t size, std::size_t alignment);
  [[nodiscard]] bool can_make_room(std::size_t size) const noexcept;
  static void release(memory_block& block, void* context) noexcept;
  static const verbs::memory_region& registration(const memory_block& block,
                                                  void* context) noexcept {
    return static_cast<state*>(context)->chunks_.registration_of(block.address());
  }
  static const verbs::memory_region& registration_external(const memory_block&,
                                                           void* context) noexcept {
    return static_cast<external*>(context)->mr;
  }
  /// Makes the owner of what `make` registers.
  template <class Make>
  local_mr own(Make make, memory_block::rights granted, std::shared_ptr<void> keepalive);
  static void release_external(memory_block&, void* context) noexcept;
  [[noreturn]] void throw_refused(std::size_t size) const;

  verbs::protection_domain& pd_;
  std::atomic<std::size_t> external_bytes_{0};
  std::atomic<std::uint64_t> external_registrations_{0};
  std::atomic<std::uint64_t> external_failed_{0};
  // Destroyed last to first: caches into the arena, the arena into the chunks.
  chunk_store chunks_;
  registered_arena arena_;
  thread_caches caches_;
  registration_cache cache_;
};

local_mr mr_allocator::state::allocate(std::size_t size, std::size_t alignment) {
  if (size - 1 >= options.limit_bytes) [[unlikely]] {
    if (size == 0) throw_out_of_range("0 bytes: ask for at least 1");
    throw_refused(size);
  }
  // std::has_single_bit would be a function call on processors without an instruction for it.
  const bool is_power = alignment != 0 && (alignment & (alignment - 1)) == 0;
  if (!is_power || alignment > alignment_max) [[unlikely]] {
    throw_out_of_range(
        detail_text("alignment %zu: a power of two up to %zu is needed", alignment, alignment_max));
  }
  thread_cache& cache = caches_.mine();
  memory_block* block = alignment <= thread_cache::line ? cache.take_piece(size) : nullptr;
  if (block != nullptr)
    block->begin(block->address(), size);
  else
    block = &divide(cache, size, alignment);
  void* const at = block->address();
  cache.count(std::ptrdiff_t(size));
  allocated_of(this);
  unpoison(at, size);
  const memory_keys keys = chunks_.keys_of(at);
  return {static_cast<std::byte*>(at), size, keys.lkey, keys.rkey, *block};
}

/// Allocates through jemalloc, when no cache has the memory.
memory_block& mr_allocator::state::divide(thread_cache& cache, std::size_t size,
                                          std::size_t alignment) {
  const int align =
      alignment <= thread_cache::line ? 0 : MALLOCX_LG_ALIGN(std::countr_zero(alignment));
  // Sizes are whole cache lines, which jemalloc aligns to a line by itself.
  const auto ask = [&] {
    return jemalloc::mallocx(thread_cache::room(size), align | cache.flags());
  };
  void* at = ask();
  if (at == nullptr && can_make_room(size)) [[unlikely]] {
    trim(0);
    at = ask();
  }
  if (at == nullptr) [[unlikely]]
    throw_refused(size);
  try {
    memory_block& block = cache.take_block();
    block.begin(at, size);
    return block;
  } catch (const std::bad_alloc&) {
    jemalloc::dallocx(at, cache.flags());
    throw;
  }
}

/// Frees memory that is kept for other sizes: in a cache, in pieces, in chunks that are too small.
bool mr_allocator::state::can_make_room(std::size_t size) const noexcept {
  return chunks_.count().chunks > 0 && size <= options.limit_bytes &&
         in_use_bytes() <= options.limit_bytes - size;
}

void mr_allocator::state::release(memory_block& block, void* context) noexcept {
  auto& self = *static_cast<state*>(context);
  const std::size_t size = block.length();
  thread_cache& cache = self.caches_.mine();
  poison(block.address(), size);
  freed_of(context);
  if (!cache.keep_piece(block)) {
    jemalloc::dallocx(block.address(), cache.flags());
    cache.give_back(block);
  }
  cache.count(-std::ptrdiff_t(size));  // The allocator may be destroyed from here on.
}

void mr_allocator::state::throw_refused(std::size_t size) const {
  if (size > options.limit_bytes) {
    detail::throw_failure(
        errc::limit_exceeded, "mr_allocator",
        detail_text("%zu bytes exceed limit_bytes, %zu", size, options.limit_bytes));
  }
  throw error{chunks_.refusal()};
}

template <class Make>
local_mr mr_allocator::state::own(Make make, memory_block::rights granted,
                                  std::shared_ptr<void> keepalive) {
  std::unique_ptr<external> owned;
  try {
    owned.reset(new external{std::move(keepalive), make(granted.access), *this});
  } catch (const error&) {
    ++external_failed_;
    throw;
  }
  memory_block& block = memory_block::make(
      {pd_.native_handle(), granted, &release_external, owned.get(), &registration_external});
  const verbs::memory_region& mr = owned.release()->mr;
  external_bytes_ += mr.length();
  ++external_registrations_;
  return {mr.address(), mr.length(), mr.lkey(), verbs::is_remote(granted.access) ? mr.rkey() : 0,
          block};
}

local_mr mr_allocator::state::register_external(std::span<const std::byte> memory, bool is_writable,
                                                std::shared_ptr<void> keepalive, bool is_cached) {
  if (memory.empty()) throw_out_of_range("0 bytes: nothing to register");
  using enum verbs::access;
  // The kernel asks for pages that may be written where windows may be bound, too.
  constexpr verbs::access writes = local_write | remote_write | remote_atomic | mw_bind;
  return own(
      [&](verbs::access flags) {
        return verbs::memory_region{pd_, const_cast<std::byte*>(memory.data()), memory.size(),
                                    flags};
      },
      {is_writable ? options.access : options.access & ~writes, is_cached}, std::move(keepalive));
}

local_mr mr_allocator::state::register_dmabuf(int fd, std::uint64_t offset, std::size_t size) {
  if (size == 0) throw_out_of_range("0 bytes: nothing to register");
  const bool is_writable = verbs::allows(options.access, verbs::access::local_write);
  const auto at = std::make_shared<descriptor_mapping>(fd, offset, size, is_writable);
  return own(
      [&](verbs::access flags) {
        return verbs::memory_region{pd_, fd, offset, size, at->address(), flags};
      },
      {options.access, true}, at);
}

local_mr mr_allocator::state::register_cached(std::span<const std::byte> memory, bool is_writable) {
  if (memory.empty()) throw_out_of_range("0 bytes: nothing to register");
  const bool peers_write = verbs::allows(options.access, verbs::access::remote_write) ||
                           verbs::allows(options.access, verbs::access::remote_atomic);
  if (std::optional<local_mr> known = cache_.find(memory, is_writable, peers_write))
    return std::move(*known);
  const auto make = [&] { return register_external(memory, is_writable, {}, true); };
  std::optional<local_mr> made;
  try {
    made = make();
  } catch (const error& e) {
    // Cached registrations may have used up the device, or RLIMIT_MEMLOCK.
    const std::error_code why = e.failure().code;
    const bool is_full =
        why == std::errc::not_enough_memory || why == std::errc::operation_not_permitted;
    if (!is_full || !cache_.trim()) throw;
  }
  return cache_.add(made ? std::move(*made) : make(), is_writable);
}

void mr_allocator::state::release_external(memory_block& block, void* context) noexcept {
  std::unique_ptr<external> owned{static_cast<external*>(context)};
  state& from = owned->from;
  const std::size_t length = owned->mr.length();
  owned.reset();
  memory_block::recycle(block);
  from.external_bytes_ -= length;  // The allocator may be destroyed from here on.
}

void mr_allocator::state::trim(std::size_t keep_bytes) {
  cache_.trim();
  caches_.flush();
  arena_.purge();
  chunks_.trim(keep_bytes);
}

mr_allocator_counters mr_allocator::state::counters() const noexcept {
  mr_allocator_counters all = chunks_.count();
  all.external_bytes = external_bytes_.load(std::memory_order_relaxed);
  all.registrations += external_registrations_.load(std::memory_order_relaxed);
  all.registrations_failed += external_failed_.load(std::memory_order_relaxed);
  all.cached_bytes = cache_.count().bytes.value();
  all.cache_hits = cache_.count().hits.value();
  all.cache_misses = cache_.count().misses.value();
  all.cache_evictions = cache_.count().evictions.value();
  return all;
}

mr_allocator_counters& mr_allocator_counters::operator+=(
    const mr_allocator_counters& other) noexcept {
  registered_bytes += other.registered_bytes;
  registered_bytes_peak += other.registered_bytes_peak;
  external_bytes += other.external_bytes;
  cached_bytes += other.cached_bytes;
  chunks += other.chunks;
  registrations += other.registrations;
  registrations_failed += other.registrations_failed;
  deregistrations_refused += other.deregistrations_refused;
  cache_hits += other.cache_hits;
  cache_misses += other.cache_misses;
  cache_evictions += other.cache_evictions;
  return *this;
}

mr_allocator::mr_allocator(verbs::protection_domain& pd, mr_allocator_options options)
    : state_{std::make_unique<state>(pd, options)} {}
mr_allocator::~mr_allocator() = default;

local_mr mr_allocator::allocate_uninitialized(std::size_t size_bytes, std::size_t alignment) {
  return state_->allocate(size_bytes, alignment);
}
local_mr mr_allocator::allocate_zeroed(std::size_t size_bytes, std::size_t alignment) {
  local_mr memory = allocate_uninitialized(size_bytes, alignment);
  std::memset(memory.bytes().data(), 0, size_bytes);
  return memory;
}
local_mr mr_allocator::register_external(std::span<std::byte> memory,
                                         std::shared_ptr<void> keepalive) {
  return state_->register_external(memory, true, std::move(keepalive));
}
const_local_mr mr_allocator::register_constant(std::span<const std::byte> memory,
                                               std::shared_ptr<void> keepalive) {
  return state_->register_external(memory, false, std::move(keepalive));
}
local_mr mr_allocator::register_dmabuf(int fd, std::uint64_t offset, std::size_t size_bytes) {
  return state_->register_dmabuf(fd, offset, size_bytes);
}
local_mr mr_allocator::register_cached(std::span<std::byte> memory) {
  return state_->register_cached(memory, true);
}
const_local_mr mr_allocator::register_cached_constant(std::span<const std::byte> memory) {
  return state_->register_cached(memory, false);
}
std::size_t mr_allocator::invalidate(std::span<const std::byte> range) noexcept {
  return state_->invalidate(range);
}
void mr_allocator::trim(std::size_t keep_bytes) { state_->trim(keep_bytes); }
mr_allocator_counters mr_allocator::counters() const noexcept { return state_->counters(); }
mr_allocator_statistics mr_allocator::statistics() const {
  return {state_->counters(), state_->in_use_bytes()};
}
verbs::access mr_allocator::access() const noexcept { return state_->options.access; }
const mr_allocator_options& mr_allocator::options() const noexcept { return state_->options; }

}  // namespace cordma
