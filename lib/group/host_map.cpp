#include "host_map.hpp"

#include <unordered_map>

namespace cordma::detail {

host_map::host_map(std::span<const std::uint64_t> hosts)
    : ranks_(hosts.size()), by_host_(hosts.size()) {
  std::unordered_map<std::uint64_t, unsigned> numbers;
  std::vector<unsigned> sizes;
  for (unsigned rank = 0; rank < hosts.size(); ++rank) {
    const unsigned host = numbers.try_emplace(hosts[rank], unsigned(sizes.size())).first->second;
    if (host == sizes.size()) sizes.push_back(0);
    ranks_[rank] = {host, sizes[host]++};
  }
  first_.push_back(0);
  for (const unsigned size : sizes) first_.push_back(first_.back() + size);
  for (unsigned rank = 0; rank < hosts.size(); ++rank) {
    const position& p = ranks_[rank];
    by_host_[first_[p.host] + p.index] = rank;
    is_regular_ = is_regular_ && sizes[p.host] == sizes[0] && first_[p.host] + p.index == rank;
  }
}

}  // namespace cordma::detail
