#include "multicast/announcement.hpp"

#include "link/listeners.hpp"
#include "multicast/group.hpp"

#include <algorithm>
#include <cstring>

namespace softverbs {

bool read(std::span<const std::byte> datagram, announcement& result) noexcept {
  if (datagram.size() < announcement::bytes_of(1) || datagram.size() > sizeof result) return false;
  std::memcpy(&result, datagram.data(), datagram.size());
  if (result.magic != announcement::magic_value || result.version != announcement::version_value ||
      result.slot >= process_slots || datagram.size() != announcement::bytes_of(result.count))
    return false;
  if (result.what != announcement::kind::members && result.what != announcement::kind::query)
    return false;
  const std::span groups{result.groups, result.count};
  return std::all_of(groups.begin(), groups.end(), is_multicast);
}

}  // namespace softverbs
