#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>

namespace softverbs {

/// `handle` is what the program holds.
struct address_handle {
  ibv_ah handle;
  union ibv_gid gid;         ///< of the destination
  in6_addr host;             ///< where it leads: see node::resolve
  union ibv_gid source_gid;  ///< what the receiver finds in the GRH
};

}  // namespace softverbs
