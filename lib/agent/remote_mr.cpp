#include <cordma/agent/remote_mr.hpp>

#include "borrower.hpp"

#include <algorithm>
#include <utility>

namespace cordma {

using detail::holding;
using std::chrono::milliseconds;

verbs::access remote_mr::access() const noexcept {
  return holding_ == nullptr ? verbs::access::none : holding_->block->access();
}
isolation remote_mr::isolation() const noexcept { return holding_->isolation; }
remote_mr_slice remote_mr::slice() const noexcept {
  return holding_ == nullptr ? remote_mr_slice{} : holding_->remote;
}

milliseconds remote_mr::remaining() const noexcept {
  if (holding_ == nullptr || holding_->state != holding_state::open) return {};
  const duration left = holding_->block->usable_until() - holding_->borrower->now();
  return std::chrono::ceil<milliseconds>(std::max(left, duration{}));
}

task<> remote_mr::renew(time_span lease) {
  CORDMA_ASSERT(holding_ != nullptr, "used an empty remote_mr");
  return borrower::renew(*holding_, lease);
}

void remote_mr::dropper::operator()(holding* h) const noexcept {
  if (h->borrower != nullptr)
    h->borrower->drop(*h);
  else
    delete h;
}

}  // namespace cordma
