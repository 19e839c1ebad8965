#include "thread_caches.hpp"

#include "base/fork.hpp"
#include "jemalloc.hpp"

#include <cordma/detail/base/assert.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace cordma {
namespace {

std::atomic<std::uint64_t> next_serial{1};

void recycle_all(block_list<memory_block>& blocks) noexcept { memory_block::recycle(blocks, 0); }

}  // namespace

/// State that the threads of one allocator share.
struct thread_cache::pool {
  pool(int arena, bool is_enabled, const memory_block::kind& of) noexcept
      : blocks_of{of}, arena_flags{arena}, enabled{is_enabled} {}

  /// Returns false in the child of a fork: another thread may have held the lock, and never
  /// releases it.
  [[nodiscard]] bool is_of_this_process() const noexcept {
    return epoch == detail::process_epoch();
  }
  [[nodiscard]] std::unique_lock<std::mutex> hold() const noexcept {
    CORDMA_ASSERT(is_of_this_process(),
                  "an allocator does not survive fork: the child makes a runtime of its own, and "
                  "ends by _exit or exec");
    return std::unique_lock{mutex};
  }
  /// Takes a cache. Null: jemalloc has no more of them, or there is no memory.
  thread_cache* take() noexcept {
    const auto lock = hold();
    if (!idle.empty()) {
      thread_cache* const cache = idle.back();
      idle.pop_back();
      return cache;
    }
    try {
      idle.reserve(all.size() + 1);  // Makes room now, so that returning the cache cannot fail.
      all.reserve(all.size() + 1);
      std::unique_ptr<thread_cache> made{new thread_cache{blocks_of, 0, false}};
      std::size_t bytes = sizeof made->id_;
      if (jemalloc::mallctl("tcache.create", &made->id_, &bytes, nullptr, 0) != 0) return nullptr;
      made->flags_ = arena_flags | MALLOCX_TCACHE(made->id_);
      return all.emplace_back(std::move(made)).get();
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  /// Returns the cache of an ending thread. Its memory must not wait for the next thread.
  void give_back(thread_cache& cache) noexcept {
    if (!is_of_this_process()) return;
    const auto lock = hold();
    if (ended) return;
    cache.flush();
    recycle_all(cache.blocks_);
    idle.push_back(&cache);
  }
  void end() noexcept {
    const auto lock = hold();
    ended = true;
    for (const auto& one : all) {
      act("tcache.destroy", *one);
      recycle_all(one->blocks_);
      for (block_list<memory_block>& pieces : one->pieces_) recycle_all(pieces);
    }
  }
  static void act(const char* control, thread_cache& on) noexcept {
    jemalloc::mallctl(control, nullptr, nullptr, &on.id_, sizeof on.id_);
  }

  const memory_block::kind blocks_of;
  const int arena_flags;
  const bool enabled;
  const std::uint32_t epoch = detail::process_epoch();
  thread_cache shared{blocks_of, arena_flags | MALLOCX_TCACHE_NONE, true};

  mutable std::mutex mutex;
  bool ended = false;
  std::vector<std::unique_ptr<thread_cache>> all;
  std::vector<thread_cache*> idle;
};

void thread_cache::flush() noexcept {
  for (block_list<memory_block>& pieces : pieces_) {
    while (!pieces.empty()) {
      memory_block& block = pieces.pop();
      jemalloc::dallocx(block.address(), flags_);
      blocks_.push(block);
    }
  }
  pool::act("tcache.flush", *this);
}

/// One thread's caches, of all allocators.
struct thread_caches::thread_table {
  struct entry {
    std::uint64_t serial;
    thread_cache* cache;
    std::shared_ptr<thread_cache::pool> pool;
  };

  ~thread_table() {
    last_of_thread = {};
    gone = true;  // Frees in a later destructor use no cache.
    for (const entry& one : entries)
      if (one.cache != &one.pool->shared) one.pool->give_back(*one.cache);
  }

  std::vector<entry> entries;
  static constinit thread_local bool gone;
};

constinit thread_local thread_caches::last_used thread_caches::last_of_thread{};
constinit thread_local bool thread_caches::thread_table::gone = false;

thread_caches::thread_caches(int arena_flags, bool enabled, const memory_block::kind& of)
    : serial_{next_serial.fetch_add(1, std::memory_order_relaxed)},
      pool_{std::make_shared<thread_cache::pool>(arena_flags, enabled, of)} {}

thread_caches::~thread_caches() { pool_->end(); }

thread_cache& thread_caches::find() noexcept {
  if (!pool_->enabled || thread_table::gone) return pool_->shared;
  thread_local thread_table table;
  const auto is_ours = [this](const thread_table::entry& one) { return one.serial == serial_; };
  auto found = std::find_if(table.entries.begin(), table.entries.end(), is_ours);
  if (found == table.entries.end()) {
    // Drops the caches of destroyed allocators, and those of a parent process.
    std::erase_if(table.entries, [](const thread_table::entry& one) {
      if (!one.pool->is_of_this_process()) return true;
      const auto lock = one.pool->hold();
      return one.pool->ended;
    });
    try {
      table.entries.reserve(table.entries.size() + 1);
    } catch (const std::bad_alloc&) {
      return pool_->shared;
    }
    thread_cache* const taken = pool_->take();
    table.entries.push_back({serial_, taken != nullptr ? taken : &pool_->shared, pool_});
    found = table.entries.end() - 1;
  }
  last_of_thread = {serial_, found->cache};
  return *found->cache;
}

void thread_caches::flush() noexcept {
  thread_cache& cache = mine();
  if (&cache != &pool_->shared) cache.flush();
}

std::size_t thread_caches::in_use_bytes() const noexcept {
  const auto lock = pool_->hold();
  std::ptrdiff_t sum = pool_->shared.in_use_.value();
  for (const auto& one : pool_->all) sum += one->in_use_.value();
  // Other threads change their counts during the sum.
  return std::size_t(std::max(sum, std::ptrdiff_t{0}));
}

}  // namespace cordma
