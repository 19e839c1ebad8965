#pragma once

#include <cordma/agent/expected_loan.hpp>

#include <cstdint>
#include <utility>

namespace cordma::test {

/// Takes the loan for a purpose, and sits on it.
struct kept_loan : expected_loan {
  explicit kept_loan(std::uint64_t wanted) {
    purpose = wanted;
    on_lent = [](expected_loan& self, remote_mr lent) noexcept {
      static_cast<kept_loan&>(self).memory = std::move(lent);
    };
  }
  remote_mr memory;
};

}  // namespace cordma::test
