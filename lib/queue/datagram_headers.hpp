#pragma once

#include "datagram_header.hpp"

#include <cordma/verbs/memory_region.hpp>
#include <cordma/verbs/protection_domain.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cordma::detail {

/// Memory for what comes in front of datagrams, for each slot of a receive queue. The program's
/// buffers hold the payload alone. \thread the executor's.
class datagram_headers {
 public:
  /// `payload_max` is the port's MTU. \errors as `verbs::memory_region`.
  datagram_headers(verbs::protection_domain& pd, std::size_t slots, std::size_t payload_max)
      : payload_max_{payload_max},
        headers_(slots),
        mr_{pd, headers_.data(), slots * sizeof(datagram_header), verbs::access::local_write} {}

  /// Returns the length that each buffer must have: a longer datagram than its buffer would end the
  /// queue pair (IBTA 10.7.3.2), so a stranger could.
  [[nodiscard]] std::size_t payload_max() const noexcept { return payload_max_; }
  /// Returns the room in front of the next datagram of a slot. A device may leave the bytes before
  /// an IPv4 header alone: nothing of an earlier GRH stays there.
  [[nodiscard]] ibv_sge room_in(std::size_t slot) noexcept {
    headers_[slot].grh[0] = {};
    return {.addr = reinterpret_cast<std::uint64_t>(headers_[slot].grh.data()),
            .length = std::uint32_t{grh_bytes},
            .lkey = mr_.lkey()};
  }
  void arrived(std::size_t slot, const ibv_wc& wc) noexcept {
    datagram_header& header = headers_[slot];
    header.src_qpn = wc.src_qp;
    header.slid = wc.slid;
    header.service_level = wc.sl;
    header.has_grh = (wc.wc_flags & IBV_WC_GRH) != 0;
  }
  [[nodiscard]] const datagram_header& of(std::size_t slot) const noexcept {
    return headers_[slot];
  }

 private:
  const std::size_t payload_max_;
  std::vector<datagram_header> headers_;
  verbs::memory_region mr_;
};

}  // namespace cordma::detail
