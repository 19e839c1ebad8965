#pragma once

namespace cordma::detail {

/// A word that is copied by itself. Of what was just made, word by word, a wider load, as compilers
/// use to copy, would wait until all of it has gone to the cache.
template <class T>
[[gnu::always_inline]] inline T by_itself(T word) noexcept {
  asm("" : "+r"(word));
  return word;
}

}  // namespace cordma::detail
