#pragma once

#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstdint>

namespace softverbs::test {

/// A group of IPv4, as rdma_cm on RoCEv2 writes it: `::ffff:239.x.y.n`. No two test programs that
/// run at the same time have the same groups.
inline ibv_gid group(std::uint8_t n) {
  const auto pid = static_cast<unsigned>(::getpid());
  return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, static_cast<std::uint8_t>(pid >> 8),
           static_cast<std::uint8_t>(pid), n}};
}

}  // namespace softverbs::test
