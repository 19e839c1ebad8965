#pragma once

#include <cstddef>
#include <cstdint>

namespace softverbs {

/// Installs the handler of SIGSEGV and SIGBUS that ends a faulting guarded access; all other faults
/// go to the previous handler. Called each time a device is opened, because the program may have
/// replaced the handler. Threads that use the device must not block these signals.
void install_fault_guard();

/// Copies registered memory, which the program may have unmapped: returns false instead of a
/// SIGSEGV, perhaps after a part. Copies in ascending order; aligned 8-byte words are never torn.
/// Hidden from ThreadSanitizer, because the copy of a device belongs to no thread.
[[nodiscard]] bool guarded_copy(void* to, const void* from, std::size_t bytes) noexcept;

/// Sets `*address` (8-aligned) to `swap` if it equals `compare`; `previous` gets the old value.
[[nodiscard]] bool guarded_compare_swap(void* address, std::uint64_t compare, std::uint64_t swap,
                                        std::uint64_t& previous) noexcept;
[[nodiscard]] bool guarded_fetch_add(void* address, std::uint64_t add,
                                     std::uint64_t& previous) noexcept;

}  // namespace softverbs
