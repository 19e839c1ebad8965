#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cordma::detail {

/// Knows which ranks of a group share a host. Hosts are numbered from 0, in the order of their
/// lowest ranks. A group makes it once.
class host_map {
 public:
  /// Takes a number for each rank, equal for those that share a host.
  explicit host_map(std::span<const std::uint64_t> hosts);

  [[nodiscard]] unsigned count() const noexcept { return unsigned(first_.size()) - 1; }
  [[nodiscard]] unsigned host_of(unsigned rank) const noexcept { return ranks_[rank].host; }
  /// Returns the number of lower ranks on the same host.
  [[nodiscard]] unsigned index_of(unsigned rank) const noexcept { return ranks_[rank].index; }
  /// Returns a host's ranks, ascending.
  [[nodiscard]] std::span<const unsigned> ranks_of(unsigned host) const noexcept {
    return std::span{by_host_}.subspan(first_[host], first_[host + 1] - first_[host]);
  }
  /// Returns true if messages are saved when each host's ranks go together: there are several
  /// hosts, with two ranks or more on average.
  [[nodiscard]] bool has_two_levels() const noexcept {
    return count() > 1 && ranks_.size() >= 2 * std::size_t(count());
  }
  /// Returns true if all hosts have as many ranks, and these are consecutive.
  [[nodiscard]] bool is_regular() const noexcept { return is_regular_; }

 private:
  struct position {
    unsigned host = 0;
    unsigned index = 0;
  };
  std::vector<position> ranks_;
  std::vector<unsigned> by_host_;
  std::vector<unsigned> first_;  // Index in `by_host_` of each host's first rank, and the end.
  bool is_regular_ = true;
};

}  // namespace cordma::detail
