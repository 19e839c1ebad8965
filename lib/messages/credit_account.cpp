#include "credit_account.hpp"

#include <algorithm>

namespace cordma::detail {

using message_protocol::credits_min;
using message_protocol::credits_reserved;

void credit_account::grow_to(std::uint32_t credit) noexcept {
  CORDMA_ASSERT(credit > credit_, "a grant gives no more credit");
  CORDMA_ASSERT(!has_shrink_request(), "a grant comes before the answer to a shrink request");
  credit_ = credit;
}

void credit_account::request_shrink(std::uint32_t credit) noexcept {
  CORDMA_ASSERT(credit >= credits_min && credit < credit_, "a shrink request out of range");
  CORDMA_ASSERT(!has_shrink_request(), "two shrink requests at once");
  shrink_request_ = credit;
}

std::uint32_t credit_account::shrunk_credit() const noexcept {
  return std::min(credit_, in_flight() + shrink_request_);
}

void credit_account::shrink_to(std::uint32_t credit) noexcept {
  CORDMA_ASSERT(has_shrink_request(), "credit shrinks without a request");
  CORDMA_ASSERT(credit <= credit_ && credit >= in_flight(), "credit shrinks out of range");
  credit_ = credit;
  shrink_request_ = 0;
}

void credit_account::limit_peer(std::uint32_t credit, std::uint32_t occupied,
                                bool can_grow) noexcept {
  constexpr std::uint32_t never = ~std::uint32_t{0};
  CORDMA_ASSERT(credit >= occupied + credits_min, "too little credit for the peer");
  peer_credit_limit_ = credit;
  grow_threshold_ = can_grow ? occupied + (credit - occupied - credits_reserved) / 2 : never;
}

/// The fewer credits for messages the peer has left, the sooner it is told of more. A credit frame
/// alone is not answered by one: else two full inboxes would send credit frames for ever.
bool credit_account::is_peer_low() const noexcept {
  const std::uint32_t owed = taken_ - told_;
  const std::uint32_t used = std::min(used_by_peer() + credits_reserved, peer_credit_limit_);
  const std::uint32_t left = peer_credit_limit_ - used;
  return owed >= std::max(left / 2, owed == untold_credit_frames_ ? 2u : 1u);
}

}  // namespace cordma::detail
