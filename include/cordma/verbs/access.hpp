#pragma once

#include <cordma/detail/base/export.hpp>

#include <infiniband/verbs.h>

#include <string>

namespace cordma::verbs {

/// Rights that a memory region grants its device, or a queue pair its peer (ibv_reg_mr(3)). Local
/// reading is always allowed. Remote writes and atomics need `local_write` as well.
enum class access : unsigned {
  none = 0,
  local_write = IBV_ACCESS_LOCAL_WRITE,
  remote_write = IBV_ACCESS_REMOTE_WRITE,
  remote_read = IBV_ACCESS_REMOTE_READ,
  remote_atomic = IBV_ACCESS_REMOTE_ATOMIC,
  mw_bind = IBV_ACCESS_MW_BIND,
  zero_based = IBV_ACCESS_ZERO_BASED,
  on_demand = IBV_ACCESS_ON_DEMAND,  ///< The device follows the page tables and pins nothing.
  hugetlb = IBV_ACCESS_HUGETLB,      ///< With `on_demand`: the memory is in huge pages.
  /// Writes and reads of the device may pass each other on the bus; a device without ignores it.
  relaxed_ordering = IBV_ACCESS_RELAXED_ORDERING,
};

constexpr access operator|(access a, access b) noexcept {
  return access(unsigned(a) | unsigned(b));
}
constexpr access operator&(access a, access b) noexcept {
  return access(unsigned(a) & unsigned(b));
}
constexpr access operator~(access a) noexcept { return access(~unsigned(a)); }
constexpr access& operator|=(access& a, access b) noexcept { return a = a | b; }
constexpr access& operator&=(access& a, access b) noexcept { return a = a & b; }

/// Returns true if `granted` holds every flag of `wanted`.
constexpr bool allows(access granted, access wanted) noexcept {
  return (granted & wanted) == wanted;
}

/// Returns a text such as "local_write|remote_read"; "none" when empty.
CORDMA_EXPORT std::string to_string(access flags);

}  // namespace cordma::verbs
