#pragma once

#include <alloca.h>

#include <cstdint>

namespace bench {

/// Calls it with its stack at the n-th of 64 places in a page. Where that lies beside all else that
/// a loop touches moves it by up to a tenth, the same each time, and two loops never have the same
/// place: rounds at all of them tell the loops from their places.
template <class Work>
[[gnu::noinline]] void at_place(std::uint64_t n, Work call) {
  constexpr std::uint64_t places = 64, cache_line = 64;
  auto* const room = static_cast<volatile char*>(alloca(n % places * cache_line + 1));
  *room = 0;  // Or there would be none.
  call();
}

}  // namespace bench
