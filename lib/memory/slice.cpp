#include <cordma/memory/slice.hpp>

#include "base/failures.hpp"
#include "base/little_endian.hpp"

namespace cordma {
void detail::throw_out_of_range(std::size_t offset, std::size_t length, std::size_t size) {
  throw_failure(errc::out_of_range, "slice",
                detail_text("offset %zu with length %zu does not lie within %zu bytes", offset,
                            length, size));
}

void detail::check_view(const std::byte* address, std::size_t length, std::size_t size,
                        std::size_t alignment) {
  if (length % size != 0) {
    throw_failure(errc::wrong_length, "slice::as",
                  detail_text("%zu bytes are no whole number of objects of %zu", length, size));
  }
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) {
    throw_failure(
        errc::misaligned, "slice::as",
        detail_text("%p is no multiple of %zu", static_cast<const void*>(address), alignment));
  }
}

std::array<std::byte, remote_mr_slice::encoded_bytes> remote_mr_slice::encode() const noexcept {
  std::array<std::byte, encoded_bytes> bytes;
  little_endian::put(bytes.data(), address_);
  little_endian::put(bytes.data() + 8, std::uint64_t{length_});
  little_endian::put(bytes.data() + 16, rkey_);
  return bytes;
}

remote_mr_slice remote_mr_slice::decode(std::span<const std::byte> bytes) {
  if (bytes.size() != encoded_bytes) {
    detail::throw_failure(
        errc::wrong_length, "remote_mr_slice::decode",
        detail::detail_text("%zu bytes, a remote slice takes %zu", bytes.size(), encoded_bytes));
  }
  return {little_endian::get<std::uint64_t>(bytes.data()),
          std::size_t{little_endian::get<std::uint64_t>(bytes.data() + 8)},
          little_endian::get<std::uint32_t>(bytes.data() + 16)};
}

}  // namespace cordma
