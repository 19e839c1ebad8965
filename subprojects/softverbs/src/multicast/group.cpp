#include "multicast/group.hpp"

#include "link/ip_address.hpp"

namespace softverbs {

bool is_multicast(const ibv_gid& gid) noexcept {
  return gid.raw[0] == 0xff || (is_mapped(gid) && (gid.raw[12] & 0xf0) == 0xe0);
}

}  // namespace softverbs
