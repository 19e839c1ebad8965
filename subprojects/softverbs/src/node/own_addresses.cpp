#include "node/own_addresses.hpp"

#include "link/ip_address.hpp"

#include <algorithm>
#include <utility>

namespace softverbs {

bool own_addresses::has(const ibv_gid& gid, time now) {
  if (same(gid, ibv_gid{}) || is_loopback(gid)) return true;
  if (now >= read_again_) {
    read_again_ = now + period;
    std::vector<ibv_gid> read = read_();
    if (!read.empty()) known_ = std::move(read);  // Empty: the system had no answer.
  }
  return std::any_of(known_.begin(), known_.end(),
                     [&](const ibv_gid& one) { return same(one, gid); });
}

}  // namespace softverbs
