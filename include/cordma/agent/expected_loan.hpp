#pragma once

#include <cordma/agent/remote_mr.hpp>
#include <cordma/base/intrusive_list.hpp>

#include <cstdint>

namespace cordma {

/// A loan that the peer was asked for by other means than the agent's: given to whoever expects its
/// purpose, and to nobody else. Destroying it forgets the expectation.
struct expected_loan : list_hook<expected_loan> {
  std::uint64_t purpose = 0;  ///< Not 0; the peer lends with the same.
  /// In the middle of a reap. The expectation is over.
  void (*on_lent)(expected_loan& self, remote_mr lent) noexcept = nullptr;
};

}  // namespace cordma
