#include <cordma/agent/remote_mr.hpp>

#include "lender.hpp"

#include <utility>

namespace cordma {

using detail::grant;

const char* to_string(loan_end_reason reason) noexcept {
  switch (reason) {
    case loan_end_reason::returned: return "returned";
    case loan_end_reason::expired: return "expired";
    case loan_end_reason::revoked: return "revoked";
    case loan_end_reason::disconnected: return "disconnected";
  }
  return "?";
}

namespace {

task<loan_end> end_of(grant& g) {
  co_await g.ended.wait();
  co_return loan_end{std::move(g.lent.memory), g.reason};
}

}  // namespace

task<loan_end> loan::ended() {
  CORDMA_ASSERT(grant_ != nullptr, "used an empty loan");
  return end_of(*grant_);
}
task<loan_end> loan::revoke() {
  CORDMA_ASSERT(grant_ != nullptr, "used an empty loan");
  if (grant_->lender != nullptr) grant_->lender->end(*grant_, loan_end_reason::revoked);
  return end_of(*grant_);
}
bool loan::has_ended() const noexcept { return grant_->state == grant_state::ended; }
isolation loan::isolation() const noexcept { return grant_->isolation; }
std::size_t loan::size_bytes() const noexcept { return grant_->size_bytes; }
remote_mr_slice loan::remote_slice() const noexcept { return grant_->remote; }

void loan::dropper::operator()(grant* g) const noexcept {
  g->has_loan = false;
  if (g->lender == nullptr)
    delete g;
  else
    g->lender->end(*g, loan_end_reason::revoked);
}

}  // namespace cordma
