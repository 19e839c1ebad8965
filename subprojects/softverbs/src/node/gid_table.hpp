#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

/// The RoCEv2 GID table of this host: 127.0.0.1 is always in it. Read at the first open.
[[nodiscard]] int gid_count() noexcept;
[[nodiscard]] union ibv_gid gid_at(int index) noexcept;  ///< zero beyond the count

}  // namespace softverbs
