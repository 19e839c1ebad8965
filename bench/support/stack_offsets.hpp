#pragma once

#include <alloca.h>

#include <cstdint>

namespace bench {

/// Makes the call with the stack at the n-th of 64 places in a page. The place, relative to all
/// else that a loop touches, changes a loop's time by up to a tenth, the same each time. Two loops
/// never have the same place, so only rounds at all places compare the loops alone.
template <class Work>
[[gnu::noinline]] void at_offset(std::uint64_t n, Work call) {
  constexpr std::uint64_t offsets = 64, cache_line = 64;
  auto* const room = static_cast<volatile char*>(alloca(n % offsets * cache_line + 1));
  *room = 0;  // The store keeps the compiler from dropping the room.
  call();
}

}  // namespace bench
