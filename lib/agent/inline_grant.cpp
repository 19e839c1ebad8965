#include "inline_grant.hpp"

#include "lender.hpp"

namespace cordma {

bool inline_grant::needs_bind() const noexcept { return grant_->lent.window.has_value(); }
bind_request inline_grant::bind() const noexcept {
  bind_request bind = grant_->lender->bind_of(*grant_);
  bind.send_flags = 0;
  return bind;
}

void inline_grant::posted() noexcept { grant_->lender->open_inline(*grant_); }

loan_terms inline_grant::terms() const noexcept {
  return {.address = grant_->remote.address(),
          .length = grant_->size_bytes,
          .rkey = grant_->remote.rkey(),
          .isolation = grant_->isolation};
}

void inline_grant::give_back(std::optional<std::uint32_t> invalidated) noexcept {
  if (grant_ == nullptr) return;
  grant_->lender->give_back(*grant_, invalidated == grant_->remote.rkey());
}

void inline_grant::revoke() noexcept {
  if (grant_ != nullptr) grant_->lender->end(*grant_, loan_end_reason::revoked);
}

void inline_grant::leave(bool is_known) noexcept {
  grant_->owner = nullptr;
  if (is_known)
    revoke();
  else
    give_back();
  grant_ = nullptr;
}

}  // namespace cordma
