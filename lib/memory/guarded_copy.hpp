#pragma once

#include <cstddef>
#include <span>

namespace cordma {

/// Copies by a system call: if the memory was unmapped, or its file was cut, that is an error,
/// where memcpy would end the process. \errors EFAULT. \cost a system call.
void guarded_copy(std::byte* to, std::span<const std::byte> from);

}  // namespace cordma
