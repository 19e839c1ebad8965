#pragma once

#include <cordma/base/time.hpp>
#include "connection/handshake.hpp"

#include <cstddef>
#include <deque>

namespace cordma::detail {

/// Nonces that were used already, for as long as what they belong to may be used. \thread one.
class used_nonces {
 public:
  /// Nonces that are kept; further ones push out the oldest.
  static constexpr std::size_t kept_max = 4096;

  /// Returns false if the nonce was added before, less than `lifetime` ago.
  bool add(const handshake::nonce& one, time_point now, duration lifetime);

 private:
  struct entry {
    handshake::nonce nonce;
    time_point until;
  };
  std::deque<entry> entries_;  // The oldest comes first.
};

}  // namespace cordma::detail
