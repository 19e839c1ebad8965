#pragma once

#include <cstddef>
#include <cstdint>

// The instructions of a guarded access, and how a fault leaves them. No sanitizer sees them.

namespace softverbs::guarded {

bool copy(void* to, const void* from, std::size_t bytes) noexcept;
bool compare_swap(void* address, std::uint64_t compare, std::uint64_t swap,
                  std::uint64_t& previous) noexcept;
bool fetch_add(void* address, std::uint64_t add, std::uint64_t& previous) noexcept;

/// Call in a handler of SIGSEGV or SIGBUS. If one of the accesses above faulted, makes it return
/// false, and returns true. `ucontext` is the third argument of the handler.
bool escape(void* ucontext) noexcept;

}  // namespace softverbs::guarded
