#pragma once

#include "wire/step.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace softverbs {

enum class key_kind : std::uint8_t { region, window_type_1, window_type_2 };

/// The rights of a key. `pd` is compared, never dereferenced.
struct key_grant {
  key_kind kind = key_kind::region;
  const void* pd = nullptr;
  unsigned access = 0;     ///< IBV_ACCESS_*
  std::uint64_t iova = 0;  ///< the address of `base` for users of the key
  std::byte* base = nullptr;
  std::uint64_t length = 0;
  std::uint32_t qpn = 0;     ///< type 2 windows: the only QP that may use it
  std::uint32_t parent = 0;  ///< windows: the region's key slot index
};

enum class key_error : std::uint8_t {
  none,
  no_such_key,
  wrong_pd,
  wrong_qp,
  no_access,
  out_of_range
};

/// A slot of the table. The memory of a slot lives as long as the table.
struct alignas(64) key_slot {
  modelled_atomic<std::uint32_t> key{0};   ///< the live 32-bit key; 0: nothing is granted
  modelled_atomic<std::uint32_t> pins{0};  ///< current users of `grant`
  key_grant grant;                         ///< written only while key == 0 and pins == 0
  std::uint8_t last_variant = 0;           ///< variant of the last key, which the next one lacks
  bool allocated = false;  ///< under the mutex of the table, like next_free and grants
  std::uint32_t next_free = 0;
  /// The number of windows bound to a region. A bind counts the window *before* it pins the region.
  /// A deregistration revokes the key first and reads the count then, so it sees the window.
  /// Revoking the window lowers the count.
  modelled_atomic<std::uint32_t> windows{0};
};

/// Keeps the grant of a key alive while its bytes are used; hold it for one copy at most.
class pinned {
 public:
  pinned() = default;
  pinned(key_slot* slot, std::byte* address) noexcept : slot_{slot}, address_{address} {}
  pinned(pinned&& other) noexcept
      : slot_{std::exchange(other.slot_, nullptr)}, address_{other.address_} {}
  pinned& operator=(pinned&& other) noexcept {
    release();
    slot_ = std::exchange(other.slot_, nullptr);
    address_ = other.address_;
    return *this;
  }
  ~pinned() { release(); }

  [[nodiscard]] std::byte* address() const noexcept { return address_; }
  void release() noexcept {
    if (slot_ != nullptr)
      std::exchange(slot_, nullptr)->pins.fetch_sub(1, std::memory_order_release);
  }

 private:
  key_slot* slot_ = nullptr;
  std::byte* address_ = nullptr;
};

inline constexpr std::uint32_t variant_bits = 8;
inline constexpr std::uint32_t variant_mask = (1u << variant_bits) - 1;
inline constexpr std::uint32_t keys_max = (1u << (32 - variant_bits)) - 1;
/// The number of free slots before one is used again, while unused ones are left: a freed key stays
/// invalid for long.
inline constexpr std::uint32_t resting_keys = 1024;

/// The lkeys and rkeys of a node: 24 bits of index, 8 bits of variant. Lookups take no lock.
///
/// The pin protocol: a user adds its pin, then reads the key; revoke() clears the key, then reads
/// the pins. All four accesses are sequentially consistent, so one of the two sees the other.
/// Either the user finds the key dead, or revoke() waits until the user's copy is done.
class key_table {
 public:
  explicit key_table(std::uint32_t capacity);
  ~key_table();
  key_table(const key_table&) = delete;
  key_table& operator=(const key_table&) = delete;

  /// Allocates a slot with a new key, not granted yet. 0: the table is full.
  std::uint32_t allocate();
  /// Revokes the live key of the slot of `key`, whatever the variant, and frees the slot.
  void free(std::uint32_t key) noexcept;

  /// Makes `key`, whose slot is allocated, live with `grant`. False: the slot has a live key.
  bool grant(std::uint32_t key, const key_grant& grant) noexcept;
  /// Makes the key dead; after the call nobody reaches memory through it. No effect on a dead key.
  /// \thread any that holds no pin.
  void revoke(std::uint32_t key) noexcept;

  /// Checks key, PD, QP (type 2 windows), access bits and range, and pins. `access` 0 asks for
  /// local read.
  key_error pin(std::uint32_t key, const void* pd, std::uint32_t qpn, unsigned access,
                std::uint64_t address, std::uint64_t length, pinned& result) noexcept;

  /// Null if the index is of no slot that was ever allocated.
  [[nodiscard]] key_slot* slot_of(std::uint32_t key) noexcept;

 private:
  /// Makes `live`, a key of `slot`, dead, and waits for the users of its grant.
  void clear(key_slot& slot, std::uint32_t live) noexcept;

  const std::uint32_t capacity_;  ///< slots, including the first, which is never used: no key is 0
  /// Memory for all slots. A slot is made when it is first allocated: others take no memory.
  key_slot* const slots_;
  modelled_atomic<std::uint32_t> fresh_{1};  ///< this slot and all later ones were never allocated
  modelled_mutex mutex_;
  // The freed slots: a list through next_free, oldest first; 0 ends it.
  std::uint32_t oldest_free_ = 0;
  std::uint32_t newest_free_ = 0;
  std::uint32_t resting_ = 0;
};

}  // namespace softverbs
