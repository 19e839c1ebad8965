#pragma once

#include <cordma/verbs/device.hpp>
#include <cordma/verbs/queue_pair_attributes.hpp>

namespace cordma::verbs {

inline constexpr std::uint8_t service_level_limit = 15;            // 4 bits.
inline constexpr std::uint32_t flow_label_limit = (1u << 20) - 1;  // 20 bits.

/// Returns true for IBV_RATE_MAX, and for the rates that libibverbs knows.
inline bool is_rate(ibv_rate rate) noexcept {
  return rate == IBV_RATE_MAX || ibv_rate_to_mbps(rate) > 0;
}

/// Each `check` is a pure function.
/// \errors  errc::limit_exceeded: the first value out of range; the detail names it and its limit.
void check(const queue_pair_capabilities& wanted, const device_limits& limits);
void check(const rtr_attributes& attributes, const device_limits& limits);
void check(const rts_attributes& attributes, const device_limits& limits);
void check(const datagram_attributes& attributes, const device_limits& limits);
/// \errors  errc::not_supported: a type that cordma does not make; names what it needs.
void check(queue_pair_type type);
/// Checks the address of a peer for `call`.
void check(const address_vector& peer, const char* call);

/// Returns the address as libibverbs takes it, from this port.
ibv_ah_attr ah_of(const address_vector& peer, std::uint8_t port) noexcept;

}  // namespace cordma::verbs
