#pragma once

#include "mapping.hpp"
#include "page_bitmap.hpp"

#include <cordma/base/error.hpp>
#include <cordma/detail/base/counter.hpp>
#include <cordma/memory/mr_allocator.hpp>
#include <cordma/verbs/memory_region.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace cordma {

/// Keys by which a device and a peer name memory.
struct alignas(8) memory_keys {
  std::uint32_t lkey = 0;
  std::uint32_t rkey = 0;
};

/// Registered memory in chunks, one registration each, and their page ranges. \thread any.
class chunk_store {
 public:
  static constexpr std::size_t page_bytes = 4096;

  /// Returns `wanted`, halved until there are addresses for that limit; at least one chunk.
  [[nodiscard]] static std::size_t limit_possible(std::size_t wanted,
                                                  std::size_t chunk_bytes) noexcept;

  chunk_store(verbs::protection_domain& pd, const mr_allocator_options& options);
  /// Deregisters all chunks. A chunk whose deregistration is refused stays mapped for ever: a peer
  /// may still reach it.
  ~chunk_store();
  chunk_store(chunk_store&&) = delete;

  /// Takes a range of one chunk, registering one if need be. Null: `refusal()` returns the reason.
  /// \param bytes  a multiple of the page.
  /// \param alignment  a power of two, at most chunk_bytes_min.
  void* take(std::size_t bytes, std::size_t alignment) noexcept;
  /// Returns any part of what was taken.
  void give_back(void* at, std::size_t bytes) noexcept;
  /// Deregisters free chunks while more than `keep_bytes` stay registered.
  void trim(std::size_t keep_bytes) noexcept;

  /// Returns the keys of an address that was taken. Lock-free.
  [[nodiscard]] memory_keys keys_of(const void* at) const noexcept {
    return by_unit_[unit_of(at)].keys.load(std::memory_order_acquire);
  }
  [[nodiscard]] const verbs::memory_region& registration_of(const void* at) const noexcept {
    return by_unit_[unit_of(at)].owner.load(std::memory_order_acquire)->mr;
  }
  [[nodiscard]] bool in_one_chunk(const void* a, const void* b) const noexcept {
    return by_unit_[unit_of(a)].owner == by_unit_[unit_of(b)].owner;
  }

  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return options_.chunk_bytes; }
  /// Returns why the last take() failed.
  [[nodiscard]] failure refusal() const;
  /// Returns the counts, without a lock; concurrent work may be counted in part.
  [[nodiscard]] mr_allocator_counters count() const noexcept;

 private:
  struct chunk {
    std::byte* at;
    std::size_t bytes;
    page_bitmap pages;
    verbs::memory_region mr;
  };
  /// The chunk at one unit of addresses. It does not change while any of the chunk is in use.
  struct unit {
    std::atomic<memory_keys> keys{};
    std::atomic<chunk*> owner{nullptr};  ///< null: no chunk
  };

  [[nodiscard]] std::size_t unit_of(const void* at) const noexcept {
    return std::size_t(static_cast<const std::byte*>(at) - space_.base()) >> unit_shift_;
  }
  [[nodiscard]] void* take_of_chunks(std::size_t bytes, std::size_t alignment) noexcept;
  void* grow(std::size_t bytes, std::size_t pages);
  void* add_chunk(std::size_t bytes, std::size_t pages);
  [[nodiscard]] verbs::memory_region register_pages(std::byte* at, std::size_t bytes);
  [[nodiscard]] std::byte* find_addresses(std::size_t bytes) const;
  void set_owner(const chunk& c, chunk* owner, memory_keys keys) noexcept;
  [[nodiscard]] bool deregister(chunk& c) noexcept;

  verbs::protection_domain& pd_;
  const mr_allocator_options options_;
  const unsigned unit_shift_;
  mapping space_;  ///< address space, in units of the smallest chunk
  struct freer {
    void operator()(unit* all) const noexcept { std::free(all); }
  };
  /// Allocated by calloc: zero pages take no memory before they are touched.
  std::unique_ptr<unit[], freer> by_unit_;

  /// Serialises registration and deregistration; other calls go on. Locked before `lock_`.
  std::mutex growth_;
  std::size_t next_chunk_bytes_;  ///< guarded by `growth_`

  mutable std::mutex lock_;  ///< held for a few steps only
  std::vector<std::unique_ptr<chunk>> chunks_;
  /// Counters written under `lock_`.
  struct {
    counter registered_bytes;
    counter registered_bytes_peak;
    counter chunks;
    counter registrations;
    counter registrations_failed;
    counter deregistrations_refused;
  } counts_;
  std::optional<failure> refusal_;
};

}  // namespace cordma
