#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace softverbs {

inline const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));

/// True if the kernel can bring pages and check the access to them (since 5.14).
[[nodiscard]] bool can_populate() noexcept;

/// Brings the pages of a range. False: one is not mapped, or does not allow the access.
[[nodiscard]] bool populate(std::byte* at, std::uint64_t bytes, bool writes) noexcept;

}  // namespace softverbs
