#pragma once

#include <cstddef>
#include <cstdint>

namespace cordma {

/// Addresses for the memory of a descriptor, by which requests name it. The memory itself is there
/// too if the descriptor can be mapped; a dma-buf of another device's memory often cannot.
class descriptor_mapping {
 public:
  /// \param bytes  at least 1.  \errors ENOMEM of mmap.
  descriptor_mapping(int fd, std::uint64_t offset, std::size_t bytes, bool is_writable);
  ~descriptor_mapping();
  descriptor_mapping(descriptor_mapping&&) = delete;

  /// Returns the address of the byte at `offset`, which is as far into its page as there.
  [[nodiscard]] std::byte* address() const noexcept { return whole_ + skipped_bytes_; }
  /// Returns false if no memory is behind the addresses.
  [[nodiscard]] bool is_mapped() const noexcept { return is_mapped_; }

 private:
  std::size_t skipped_bytes_;
  std::size_t whole_bytes_;
  std::byte* whole_ = nullptr;
  bool is_mapped_ = false;
};

}  // namespace cordma
