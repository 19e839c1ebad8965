#include "cm_event.hpp"

#include <algorithm>
#include <cstring>

namespace cordma::cm {

cm_event::cm_event(const rdma_cm_event& original) noexcept
    : kind{original.event}, status{original.status} {
  if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) request = original.id;
  if (original.id != nullptr && original.id->ps == RDMA_PS_UDP) {
    const rdma_ud_param& told = original.param.ud;
    datagrams = {.path = told.ah_attr, .qpn = told.qp_num, .qkey = told.qkey};
    return;
  }
  const rdma_conn_param& from = original.param.conn;
  message.qpn = from.qp_num;
  message.offer = {.responder_resources = from.responder_resources,
                   .initiator_depth = from.initiator_depth,
                   .retry_count = from.retry_count,
                   .rnr_retry_count = from.rnr_retry_count};
  if (from.private_data != nullptr) {
    const std::size_t size_bytes = std::min<std::size_t>(from.private_data_len, reply_bytes_max);
    std::memcpy(message.bytes.data(), from.private_data, size_bytes);
    message.size_bytes = std::uint8_t(size_bytes);
  }
}

}  // namespace cordma::cm
