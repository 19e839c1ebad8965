#pragma once

#include "cm_event.hpp"

#include <cordma/verbs/queue_pair_attributes.hpp>

#include <infiniband/verbs.h>

#include <cstdint>

namespace cordma::cm {

/// Attributes of RESET to INIT.
struct init_attributes {
  std::uint8_t port = 0;
  std::uint16_t pkey_index = 0;
};

/// The functions take what rdma_init_qp_attr(3) gave for their state. `own` bounds what the peer
/// asks for.
init_attributes to_init(const ibv_qp_attr& from) noexcept;
/// `min_rnr_timer` stays cordma's default, because the kernel gives 0, which is 655 ms.
verbs::rtr_attributes to_rtr(const ibv_qp_attr& from, const parameters& own) noexcept;
/// A peer that asks for retries for ever (`rnr_retry` 7, as rping does) gets 6.
verbs::rts_attributes to_rts(const ibv_qp_attr& from, const parameters& own) noexcept;

}  // namespace cordma::cm
