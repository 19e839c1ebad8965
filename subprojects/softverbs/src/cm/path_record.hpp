#pragma once

#include "cm/kernel_abi.hpp"

#include <infiniband/verbs.h>

#include <cstdint>

namespace softverbs::cm {

/// The path to the peer, made of the two addresses, as on RoCE.
struct path {
  ibv_gid source{};
  ibv_gid destination{};
  std::uint32_t flow_label = 0;
  std::uint8_t hop_limit = default_hop_limit;
  std::uint8_t traffic_class = 0;
  std::uint8_t service_level = 0;
  std::uint8_t mtu = IBV_MTU_4096;
  std::uint8_t rate = 0;  ///< 0: the port's
  std::uint8_t life_time = packet_life_time;
};

/// A path record as the subnet administrator packs it (IBTA volume 1, 15.2.5.16).
[[nodiscard]] ib_path_rec_data packed(const path&) noexcept;
[[nodiscard]] path unpacked(const ib_path_rec_data&) noexcept;
[[nodiscard]] ib_user_path_rec route_record(const path&) noexcept;
/// The address of the peer. `sgid_index` is that of the path's source.
[[nodiscard]] ib_uverbs_ah_attr ah_attr_of(const path&, int sgid_index) noexcept;

/// The flags of a path record that rdma_cm uses.
inline constexpr std::uint32_t usable_path = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;

/// Spreads connections over a network's links, as the kernel does for RoCEv2.
constexpr std::uint32_t flow_label_of(std::uint16_t source_port,
                                      std::uint16_t destination_port) noexcept {
  return (source_port * 31u + destination_port) & 0xfffff;
}

}  // namespace softverbs::cm
