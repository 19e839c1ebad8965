#include "used_nonces.hpp"

#include <algorithm>

namespace cordma::detail {

bool used_nonces::add(const handshake::nonce& one, time_point now, duration lifetime) {
  while (!entries_.empty() && entries_.front().until <= now) entries_.pop_front();
  const auto same = [&](const entry& e) { return e.nonce == one; };
  if (std::ranges::any_of(entries_, same)) return false;
  if (entries_.size() == kept_max) entries_.pop_front();
  entries_.push_back({one, now + lifetime});
  return true;
}

}  // namespace cordma::detail
