#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace softverbs {

enum class key_kind : std::uint8_t { region, window_type_1, window_type_2 };

/// What a key opens. `pd` is compared, never followed.
struct key_grant {
  key_kind kind = key_kind::region;
  const void* pd = nullptr;
  unsigned access = 0;     ///< IBV_ACCESS_*
  std::uint64_t iova = 0;  ///< the address that users of the key give for `base`
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

/// One place of the table. Its memory stays for the table's lifetime.
struct alignas(64) key_slot {
  std::atomic<std::uint32_t> key{0};      ///< the live 32-bit key; 0: nothing is granted
  std::atomic<std::uint32_t> pins{0};     ///< users of `grant` at this moment
  key_grant grant;                        ///< written only while key == 0 and pins == 0
  std::uint8_t next_variant = 0;          ///< low 8 bits of the next key of a region
  bool allocated = false;                 ///< guarded by the table's mutex, as next_variant
  std::atomic<std::uint32_t> windows{0};  ///< regions: windows bound to it
};

/// Holds a key's grant alive while its bytes are used; release it within one copy.
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

/// lkeys and rkeys of a node: 24 bits of index, 8 bits of variant. Lookups take no lock.
class key_table {
 public:
  explicit key_table(std::uint32_t capacity);

  /// A free slot with a fresh key, not granted yet; 0 when the table is full (or at `limit`
  /// objects).
  std::uint32_t allocate();
  /// Revokes and gives the slot back.
  void free(std::uint32_t key) noexcept;

  /// Makes `key` (its slot allocated and not granted) open `grant`.
  void grant(std::uint32_t key, const key_grant& grant) noexcept;
  /// After this returns nobody reaches memory through the key. Thread: any that holds no pin.
  void revoke(std::uint32_t key) noexcept;

  /// Checks key, PD, QP (type 2 windows), access bits and range, and pins. `access` 0 asks for
  /// local read.
  key_error pin(std::uint32_t key, const void* pd, std::uint32_t qpn, unsigned access,
                std::uint64_t address, std::uint64_t length, pinned& result) noexcept;

  [[nodiscard]] key_slot* slot_of(std::uint32_t key) noexcept;  ///< null when out of the table

 private:
  std::unique_ptr<key_slot[]> slots_;
  std::uint32_t capacity_;
  std::mutex mutex_;
  std::vector<std::uint32_t> free_;
};

}  // namespace softverbs
