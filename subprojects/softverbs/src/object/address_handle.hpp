#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <cstdint>

namespace softverbs {

/// An address handle; the program holds `handle`.
struct address_handle {
  ibv_ah handle;
  const ibv_pd* pd;   ///< the domain that queue pairs compare
  union ibv_gid gid;  ///< GID of the destination
  in6_addr host;      ///< host of the destination, see node::resolve; unused for a group
  // The fields that the receiver finds in the GRH.
  union ibv_gid source_gid;
  std::uint32_t class_and_flow;  ///< value of the frame header's field
  std::uint8_t hop_limit;        ///< 0: datagrams have no GRH, on an InfiniBand port
};

}  // namespace softverbs
