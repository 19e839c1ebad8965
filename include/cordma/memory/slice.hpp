#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/detail/memory/lease_block.hpp>
#include <cordma/detail/memory/memory_block.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace cordma {

namespace detail {
CORDMA_EXPORT [[noreturn]] void throw_out_of_range(std::size_t offset, std::size_t length,
                                                   std::size_t size);
/// \errors errc::out_of_range when [offset, offset + length) does not lie in [0, size).
inline void check_range(std::size_t offset, std::size_t length, std::size_t size) {
  if (offset > size || length > size - offset) [[unlikely]]
    throw_out_of_range(offset, length, size);
}
/// \errors errc::wrong_length unless `length` is a multiple of `size`; errc::misaligned unless
///   `address` is a multiple of `alignment`.
CORDMA_EXPORT void check_view(const std::byte* address, std::size_t length, std::size_t size,
                              std::size_t alignment);
}  // namespace detail

/// A part of registered local memory that the device may read, for `send` and `write`. A slice is a
/// value of 32 bytes that owns nothing. A posted request acquires the memory until it completes;
/// posting is refused (`errc::stale_slice`) if the memory was freed before.
///
/// Offsets and lengths are bytes. Out of range throws `errc::out_of_range`, because lengths often
/// come from peers. The default slice is empty. \thread any.
class const_local_mr_slice {
 public:
  const_local_mr_slice() noexcept = default;
  /// Makes a slice; `block` is the control block of the registration of `lkey`, which covers these
  /// bytes.
  const_local_mr_slice(const std::byte* address, std::size_t length, std::uint32_t lkey,
                       memory_block& block) noexcept
      : address_{const_cast<std::byte*>(address)},
        length_{length},
        block_{&block},
        lkey_{lkey},
        generation_{block.generation()} {}

  [[nodiscard]] std::size_t size_bytes() const noexcept { return length_; }
  [[nodiscard]] bool empty() const noexcept { return length_ == 0; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {address_, length_}; }
  /// Returns the bytes as objects. \errors errc::wrong_length: not a whole number of objects.
  /// errc::misaligned.
  template <class T>
    requires(std::is_trivially_copyable_v<T>)
  [[nodiscard]] std::span<const T> as() const {
    detail::check_view(address_, length_, sizeof(T), alignof(T));
    return {reinterpret_cast<const T*>(address_), length_ / sizeof(T)};
  }
  [[nodiscard]] const_local_mr_slice slice(std::size_t offset, std::size_t length) const {
    detail::check_range(offset, length, length_);
    return {address_ + offset, length, block_, lkey_, generation_};
  }
  [[nodiscard]] const_local_mr_slice first(std::size_t length) const { return slice(0, length); }
  [[nodiscard]] const_local_mr_slice last(std::size_t length) const {
    detail::check_range(0, length, length_);
    return slice(length_ - length, length);
  }

  [[nodiscard]] std::uint32_t lkey() const noexcept { return lkey_; }
  /// Returns the control block; null for the default slice, and for a standing one.
  [[nodiscard]] memory_block* block() const noexcept { return block_; }
  /// Returns true if a request must acquire the memory.
  [[nodiscard, gnu::always_inline]] bool is_held() const noexcept {
    return length_ != 0 && block_ != nullptr;
  }
  [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }

 protected:
  const_local_mr_slice(std::byte* address, std::size_t length, memory_block* block,
                       std::uint32_t lkey, std::uint32_t generation) noexcept
      : address_{address}, length_{length}, block_{block}, lkey_{lkey}, generation_{generation} {}

  std::byte* address_ = nullptr;
  std::size_t length_ = 0;
  memory_block* block_ = nullptr;
  std::uint32_t lkey_ = 0;
  std::uint32_t generation_ = 0;
};

/// A part of registered local memory that the device may also write, for `recv` and `read`.
class local_mr_slice : public const_local_mr_slice {
 public:
  local_mr_slice() noexcept = default;
  local_mr_slice(std::byte* address, std::size_t length, std::uint32_t lkey,
                 memory_block& block) noexcept
      : const_local_mr_slice{address, length, lkey, block} {}
  /// Makes a slice that is valid while the block has that generation.
  local_mr_slice(std::byte* address, std::size_t length, memory_block* block, std::uint32_t lkey,
                 std::uint32_t generation) noexcept
      : const_local_mr_slice{address, length, block, lkey, generation} {}

  /// Returns a slice of memory that outlasts every queue pair it is posted on, and all their
  /// requests. Requests do not acquire the memory, which saves up to two locked instructions. Use
  /// it only when one owner controls both lifetimes.
  [[nodiscard]] local_mr_slice standing() const noexcept {
    return {address_, length_, nullptr, lkey_, generation_};
  }

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {address_, length_}; }
  /// Returns the bytes as mutable objects. \errors as `const_local_mr_slice`.
  template <class T>
    requires(std::is_trivially_copyable_v<T>)
  [[nodiscard]] std::span<T> as() const {
    detail::check_view(address_, length_, sizeof(T), alignof(T));
    return {reinterpret_cast<T*>(address_), length_ / sizeof(T)};
  }
  [[nodiscard]] local_mr_slice slice(std::size_t offset, std::size_t length) const {
    detail::check_range(offset, length, length_);
    return {address_ + offset, length, block_, lkey_, generation_};
  }
  [[nodiscard]] local_mr_slice first(std::size_t length) const { return slice(0, length); }
  [[nodiscard]] local_mr_slice last(std::size_t length) const {
    detail::check_range(0, length, length_);
    return slice(length_ - length, length);
  }
};

/// A part of a peer's memory for one-sided operations, as a value: address, length and rkey. A
/// slice of a `remote_mr` is refused before posting when its lease does not allow the use. For a
/// slice made by hand, only the operation shows whether the peer grants the access:
/// `wc_errc::remote_access` if not.
class CORDMA_EXPORT remote_mr_slice {
 public:
  static constexpr std::size_t encoded_bytes = 20;

  remote_mr_slice() noexcept = default;
  remote_mr_slice(std::uint64_t address, std::size_t length, std::uint32_t rkey) noexcept
      : address_{address}, length_{length}, rkey_{rkey} {}
  /// Makes a slice of borrowed memory.
  remote_mr_slice(std::uint64_t address, std::size_t length, std::uint32_t rkey,
                  lease_block& lease) noexcept
      : address_{address},
        length_{length},
        rkey_{rkey},
        generation_{lease.generation()},
        lease_{&lease} {}

  [[nodiscard]] std::uint64_t address() const noexcept { return address_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return length_; }
  [[nodiscard]] std::uint32_t rkey() const noexcept { return rkey_; }
  [[nodiscard]] remote_mr_slice slice(std::size_t offset, std::size_t length) const {
    detail::check_range(offset, length, length_);
    return {address_ + offset, length, rkey_, generation_, lease_};
  }
  [[nodiscard]] remote_mr_slice first(std::size_t length) const { return slice(0, length); }
  [[nodiscard]] remote_mr_slice last(std::size_t length) const {
    detail::check_range(0, length, length_);
    return slice(length_ - length, length);
  }

  /// Returns the lease; null if the slice was made by hand.
  [[nodiscard]] lease_block* lease() const noexcept { return lease_; }
  [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }

  /// Encodes address, length and rkey, little-endian, for programs with a protocol of their own.
  [[nodiscard]] std::array<std::byte, encoded_bytes> encode() const noexcept;
  /// Decodes a slice. The peer's values are not verified. \errors errc::wrong_length: not
  /// `encoded_bytes` long.
  static remote_mr_slice decode(std::span<const std::byte> bytes);

 private:
  remote_mr_slice(std::uint64_t address, std::size_t length, std::uint32_t rkey,
                  std::uint32_t generation, lease_block* lease) noexcept
      : address_{address}, length_{length}, rkey_{rkey}, generation_{generation}, lease_{lease} {}

  std::uint64_t address_ = 0;
  std::size_t length_ = 0;
  std::uint32_t rkey_ = 0;
  std::uint32_t generation_ = 0;
  lease_block* lease_ = nullptr;
};

/// Combines several slices for one operation, in order: `conn.write(gather(header, body), remote)`.
template <class... Slices>
std::array<const_local_mr_slice, sizeof...(Slices)> gather(const Slices&... slices) noexcept {
  return {const_local_mr_slice{slices}...};
}

/// Combines several slices for receiving and reading.
template <class... Slices>
std::array<local_mr_slice, sizeof...(Slices)> scatter(Slices&&... slices) noexcept {
  return {local_mr_slice{slices}...};
}

}  // namespace cordma
