#pragma once

#include <cordma/memory/slice.hpp>

#include <cstddef>
#include <span>

struct ibv_pd;

namespace cordma::detail {

/// Returns the part of `chosen` that a message of `length` bytes fills. `call` is what the program
/// called, and `pd` the domain of its connections.
/// \errors errc::wrong_length: `chosen` is shorter; both numbers are named. errc::stale_slice;
///   errc::wrong_protection_domain; errc::access_denied: registered without local_write.
[[nodiscard]] local_mr_slice part_to_fill(const local_mr_slice& chosen, std::size_t length,
                                          const ibv_pd* pd, const char* call);
/// Copies a message to where it goes. \errors EFAULT, for memory that only the device may read.
void copy_into(const local_mr_slice& part, std::span<const std::byte> message);

}  // namespace cordma::detail
