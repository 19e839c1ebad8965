#pragma once

#include "memory/guarded_copy.hpp"
#include "node/node.hpp"

#include <cstddef>
#include <cstdint>

namespace softverbs {

/// In place of the key of a peer: a receive, or the answer to a request of this process, writes.
inline constexpr std::uint32_t no_rkey = 0;
/// Tells a simulation that the device has written memory of the process.
inline void note_written(const node& local_node, const std::byte* at, std::uint64_t bytes,
                         std::uint32_t rkey) noexcept {
  if (simulated_host* const host = local_node.simulated(); host != nullptr) [[unlikely]]
    host->on_written(at, bytes, rkey);
}
/// Writes memory of the process, whose pages may be unmapped. False: they, or those of `from`, are.
[[nodiscard]] inline bool store(const node& local_node, std::byte* to, const std::byte* from,
                                std::uint32_t bytes, std::uint32_t rkey) noexcept {
  if (!guarded_copy(to, from, bytes)) return false;
  note_written(local_node, to, bytes, rkey);
  return true;
}

}  // namespace softverbs
