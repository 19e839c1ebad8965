#pragma once

#include "node/gid_table.hpp"
#include "wire/time.hpp"

#include <infiniband/verbs.h>

#include <chrono>
#include <vector>

namespace softverbs {

/// The addresses of this host, for a caller that asks often: reads the system's list at most once
/// a second. Callers lock.
class own_addresses {
 public:
  using time = clock::time_point;
  using reader = std::vector<union ibv_gid> (*)();
  static constexpr std::chrono::seconds period{1};

  explicit own_addresses(reader read = &interface_addresses) noexcept : read_{read} {}
  /// True if the address belongs to this host. Loopback and all zero count as ours. \errors
  /// std::bad_alloc.
  [[nodiscard]] bool has(const union ibv_gid& gid, time now);

 private:
  reader read_;
  std::vector<union ibv_gid> known_;
  time read_again_{};
};

}  // namespace softverbs
