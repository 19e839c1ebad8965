#include "memory/key_table.hpp"

#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>

namespace softverbs {
namespace {

constexpr unsigned remote_access =
    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

key_error check(const key_grant& grant, const void* pd, std::uint32_t qpn, unsigned access,
                std::uint64_t address, std::uint64_t length) noexcept {
  if (grant.pd != pd) return key_error::wrong_pd;
  if (grant.kind == key_kind::window_type_2 && grant.qpn != qpn) return key_error::wrong_qp;
  if ((grant.access & access) != access) return key_error::no_access;
  // A window grants remote access only: its key is no lkey.
  if (grant.kind != key_kind::region && (access & remote_access) == 0) return key_error::no_access;
  if (address < grant.iova) return key_error::out_of_range;
  const std::uint64_t offset = address - grant.iova;
  if (offset > grant.length || length > grant.length - offset) return key_error::out_of_range;
  return key_error::none;
}

/// Memory for slots, which the kernel provides page by page as it is touched.
key_slot* map_slots(std::size_t count) {
  void* const at = ::mmap(nullptr, count * sizeof(key_slot), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc{};
  return static_cast<key_slot*>(at);
}

}  // namespace

key_table::key_table(std::uint32_t capacity)
    : capacity_{std::min(capacity, keys_max) + 1}, slots_{map_slots(capacity_)} {}

key_table::~key_table() {
  static_assert(std::is_trivially_destructible_v<key_slot>);
  ::munmap(slots_, capacity_ * sizeof(key_slot));
}

key_slot* key_table::slot_of(std::uint32_t key) noexcept {
  const std::uint32_t index = key >> variant_bits;
  return index != 0 && index < fresh_.load(std::memory_order_acquire) ? &slots_[index] : nullptr;
}

std::uint32_t key_table::allocate() {
  const std::lock_guard lock{mutex_};
  std::uint32_t index = oldest_free_;
  const std::uint32_t fresh = fresh_.load(std::memory_order_relaxed);
  if (fresh < capacity_ && resting_ < resting_keys) {
    index = fresh;
    std::construct_at(&slots_[index]);
    fresh_.store(fresh + 1, std::memory_order_release);
  } else if (index != 0) {
    oldest_free_ = slots_[index].next_free;
    --resting_;
  } else {
    return 0;
  }
  key_slot& slot = slots_[index];
  slot.allocated = true;
  return index << variant_bits | ++slot.last_variant;
}

void key_table::free(std::uint32_t key) noexcept {
  key_slot* slot = slot_of(key);
  if (slot == nullptr) return;
  clear(*slot, slot->key.load(std::memory_order_acquire));
  const std::lock_guard lock{mutex_};
  if (!slot->allocated) return;
  slot->allocated = false;
  slot->next_free = 0;
  const std::uint32_t index = key >> variant_bits;
  (resting_++ == 0 ? oldest_free_ : slots_[newest_free_].next_free) = index;
  newest_free_ = index;
}

bool key_table::grant(std::uint32_t key, const key_grant& grant) noexcept {
  key_slot* slot = slot_of(key);
  if (slot == nullptr) return false;
  const std::lock_guard lock{mutex_};
  if (!slot->allocated || slot->key.load(std::memory_order_seq_cst) != 0) return false;
  // A revocation of the slot's last key may still wait for users. A later pin finds the key dead
  // and does not read the grant.
  while (slot->pins.load(std::memory_order_seq_cst) != 0) modelled_yield();
  slot->grant = grant;
  slot->last_variant = static_cast<std::uint8_t>(key & variant_mask);
  slot->key.store(key, std::memory_order_seq_cst);
  return true;
}

void key_table::revoke(std::uint32_t key) noexcept {
  key_slot* slot = slot_of(key);
  if (slot != nullptr) clear(*slot, key);
}

void key_table::clear(key_slot& slot, std::uint32_t live) noexcept {
  if (live == 0) return;
  // If several threads revoke a key, the one that clears it keeps a pin until it is done; the
  // others wait for that pin, too.
  slot.pins.fetch_add(1, std::memory_order_seq_cst);
  std::uint32_t found = live;
  if (slot.key.compare_exchange_strong(found, 0, std::memory_order_seq_cst)) {
    while (slot.pins.load(std::memory_order_seq_cst) != 1) modelled_yield();
    if (slot.grant.kind != key_kind::region) slots_[slot.grant.parent].windows.fetch_sub(1);
    slot.pins.fetch_sub(1, std::memory_order_release);
    return;
  }
  slot.pins.fetch_sub(1, std::memory_order_release);
  while (found == 0 && slot.pins.load(std::memory_order_seq_cst) != 0) modelled_yield();
}

key_error key_table::pin(std::uint32_t key, const void* pd, std::uint32_t qpn, unsigned access,
                         std::uint64_t address, std::uint64_t length, pinned& result) noexcept {
  key_slot* slot = slot_of(key);
  if (slot == nullptr) return key_error::no_such_key;
  slot->pins.fetch_add(1, std::memory_order_seq_cst);
  key_error error = key_error::no_such_key;
  if (slot->key.load(std::memory_order_seq_cst) == key)
    error = check(slot->grant, pd, qpn, access, address, length);
  if (error == key_error::none)
    // Adds integers, not pointers: the base of an implicit region is null.
    result = pinned{
        slot, reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(slot->grant.base) +
                                           (address - slot->grant.iova))};
  else
    slot->pins.fetch_sub(1, std::memory_order_release);
  return error;
}

}  // namespace softverbs
