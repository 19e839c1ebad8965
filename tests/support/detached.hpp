#pragma once

#include "request/queue_pair.hpp"

#include <array>
#include <cstddef>
#include <span>

namespace cordma::test {

/// Posts requests that nobody awaits. False: they were not posted.
template <class... Requests>
bool post_detached(queue_pair& qp, const Requests&... requests) {
  const std::array<wr_summary, sizeof...(Requests)> all{requests.summary()...};
  std::array<ibv_send_wr, sizeof...(Requests)> wrs;
  std::array<ibv_sge, (Requests::sge_count + ...)> sges;
  return qp.post_detached({all, wrs.data(), sges.data()});
}

/// Bytes for a SEND that goes inline.
inline const_local_mr_slice unregistered(std::span<std::byte> bytes) noexcept {
  return local_mr_slice{bytes.data(), bytes.size(), nullptr, 0, 0};
}

}  // namespace cordma::test
