#pragma once

#include <cstddef>
#include <cstdint>

namespace softverbs {

/// Installs the SIGSEGV and SIGBUS handler that ends a faulting guarded access; it hands all other
/// faults to the handler it found. Called when a device is opened: a handler that the program has
/// put in its place since is found then. Threads that use the device must not block these signals.
void install_fault_guard();

/// Copies between memory that the program registered, and may have unmapped since: false instead of
/// SIGSEGV, after copying some of it. Ascending addresses; aligned 8-byte words are never torn.
/// The one function that ThreadSanitizer must not see: a device's copy is no thread's.
[[nodiscard]] bool guarded_copy(void* to, const void* from, std::size_t bytes) noexcept;

/// `*address` (8-aligned) becomes `swap` if it is `compare`; `previous` is what it was.
[[nodiscard]] bool guarded_compare_swap(void* address, std::uint64_t compare, std::uint64_t swap,
                                        std::uint64_t& previous) noexcept;
[[nodiscard]] bool guarded_fetch_add(void* address, std::uint64_t add,
                                     std::uint64_t& previous) noexcept;

}  // namespace softverbs
