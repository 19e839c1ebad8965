#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/memory/slice.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace cordma {

class registration_cache;

/// Owns a piece of registered memory. Move-only. Destroying it makes its slices stale at once; the
/// memory itself is freed when the last request in flight that names it has completed. The owner
/// must be destroyed before its protection domain. \thread any, one at a time.
class CORDMA_EXPORT local_mr {
 public:
  local_mr() noexcept = default;
  /// Takes over the owner's reference to `block`. `rkey` is 0 for memory without remote access.
  local_mr(std::byte* address, std::size_t length, std::uint32_t lkey, std::uint32_t rkey,
           memory_block& block) noexcept
      : whole_{address, length, lkey, block}, rkey_{rkey} {}
  local_mr(local_mr&& other) noexcept
      : whole_{std::exchange(other.whole_, {})},
        rkey_{std::exchange(other.rkey_, 0)},
        is_owner_{std::exchange(other.is_owner_, true)} {}
  local_mr& operator=(local_mr&& other) noexcept {
    local_mr taken{std::move(other)};
    std::swap(whole_, taken.whole_);
    std::swap(rkey_, taken.rkey_);
    std::swap(is_owner_, taken.is_owner_);
    return *this;
  }
  ~local_mr() { reset(); }

  /// Keeps a part of another owner's memory, as a request in flight does. When the owner is
  /// destroyed, its slices become stale, but the memory stays until the returned object is
  /// destroyed. Write to the memory only if its owner allows it. \errors errc::stale_slice.
  [[nodiscard]] static local_mr keep(const const_local_mr_slice& part);

  [[nodiscard]] std::size_t size_bytes() const noexcept { return whole_.size_bytes(); }
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return whole_.bytes(); }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return whole_.bytes(); }
  [[nodiscard]] verbs::access access() const noexcept {
    return whole_.block() == nullptr ? verbs::access::none : whole_.block()->access();
  }

  /// Returns all of the memory. Slices are values: they may outlive this object, and are refused
  /// then.
  [[nodiscard]] local_mr_slice slice() noexcept { return whole_; }
  [[nodiscard]] local_mr_slice slice(std::size_t offset, std::size_t length) {
    return whole_.slice(offset, length);
  }
  [[nodiscard]] local_mr_slice first(std::size_t length) { return whole_.first(length); }
  [[nodiscard]] local_mr_slice last(std::size_t length) { return whole_.last(length); }
  [[nodiscard]] const_local_mr_slice slice() const noexcept { return whole_; }
  [[nodiscard]] const_local_mr_slice slice(std::size_t offset, std::size_t length) const {
    return const_local_mr_slice{whole_}.slice(offset, length);
  }
  [[nodiscard]] const_local_mr_slice first(std::size_t length) const { return slice(0, length); }
  [[nodiscard]] const_local_mr_slice last(std::size_t length) const {
    return const_local_mr_slice{whole_}.last(length);
  }
  operator local_mr_slice() noexcept { return whole_; }
  operator const_local_mr_slice() noexcept { return whole_; }
  operator const_local_mr_slice() const noexcept { return whole_; }

  /// Returns the slice by which a peer names this memory. \errors errc::access_denied: registered
  /// without remote access.
  [[nodiscard]] remote_mr_slice remote_slice() const {
    if (rkey_ == 0) [[unlikely]]
      throw_not_remote();
    return {reinterpret_cast<std::uint64_t>(whole_.bytes().data()), size_bytes(), rkey_};
  }

  void reset() noexcept {
    memory_block* const block = whole_.block();
    if (block == nullptr) return;
    is_owner_ ? block->give_up() : block->release();
    whole_ = {};
    rkey_ = 0;
    is_owner_ = true;
  }

 private:
  friend class registration_cache;
  [[noreturn]] static void throw_not_remote();

  local_mr_slice whole_;
  std::uint32_t rkey_ = 0;
  bool is_owner_ = true;
};

/// Owns memory that was registered for reading only: the program's constants, files mapped
/// read-only. A `local_mr` converts to it. \thread as `local_mr`.
class const_local_mr {
 public:
  const_local_mr() noexcept = default;
  const_local_mr(local_mr&& memory) noexcept : memory_{std::move(memory)} {}

  [[nodiscard]] std::size_t size_bytes() const noexcept { return memory_.size_bytes(); }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return memory_.bytes(); }
  [[nodiscard]] verbs::access access() const noexcept { return memory_.access(); }
  /// Returns all of the memory, or a part. \errors errc::out_of_range.
  [[nodiscard]] const_local_mr_slice slice() const noexcept { return memory_.slice(); }
  [[nodiscard]] const_local_mr_slice slice(std::size_t offset, std::size_t length) const {
    return memory_.slice(offset, length);
  }
  [[nodiscard]] const_local_mr_slice first(std::size_t length) const { return slice(0, length); }
  [[nodiscard]] const_local_mr_slice last(std::size_t length) const { return memory_.last(length); }
  operator const_local_mr_slice() const noexcept { return slice(); }
  /// Returns the slice by which a peer reads this memory. \errors as `local_mr`.
  [[nodiscard]] remote_mr_slice remote_slice() const { return memory_.remote_slice(); }

  void reset() noexcept { memory_.reset(); }

 private:
  local_mr memory_;
};

}  // namespace cordma
