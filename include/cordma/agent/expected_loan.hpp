#pragma once

#include <cordma/agent/remote_mr.hpp>
#include <cordma/base/intrusive_list.hpp>

#include <chrono>
#include <cstdint>

namespace cordma {

/// A loan that the peer is asked for by other means than the agent's, afterwards: given to whoever
/// expects its purpose, and to nobody else. Destroying it forgets the expectation.
struct expected_loan : list_hook<expected_loan> {
  std::uint64_t purpose = 0;  ///< Not 0; the peer lends with the same.
  /// Of the lease, which ends here before it ends there; set when it is expected.
  std::chrono::steady_clock::time_point since{};
  /// In the middle of a reap. The expectation is over.
  void (*on_lent)(expected_loan& self, remote_mr lent) noexcept = nullptr;
};

}  // namespace cordma
