#include "datagram_listener.hpp"

#include "failures.hpp"

#include <arpa/inet.h>

#include <cerrno>
#include <string_view>

namespace cordma::cm {
namespace {

bool is_on_port_of(const verbs::queue_pair& qp, const rdma_cm_id& request) noexcept {
  const std::string_view own = ibv_get_device_name(qp.native_handle()->context->device);
  return request.verbs != nullptr && own == ibv_get_device_name(request.verbs->device) &&
         request.port_num == qp.port();
}

}  // namespace

datagram_listener::datagram_listener(event_channel& channel, const socket_address& local,
                                     verbs::queue_pair& qp)
    : qp_{qp}, address_{local}, id_{channel.create_id(*this, RDMA_PS_UDP)} {
  if (rdma_bind_addr(id_.get(), const_cast<sockaddr*>(local.data())) != 0)
    throw error{call_failure(errno, "rdma_bind_addr", local)};
  if (rdma_listen(id_.get(), backlog) != 0) throw error{call_failure(errno, "rdma_listen", local)};
  address_.set_port(ntohs(rdma_get_src_port(id_.get())));
}

void datagram_listener::on_event(const cm_event& event) noexcept {
  if (event.request == nullptr) return;
  // The request ends here: a peer that missed the answer asks again.
  const owned_id request{event.request};
  if (!is_on_port_of(qp_, *request)) {
    rdma_reject(request.get(), nullptr, 0);
    return;
  }
  rdma_conn_param answer{};
  answer.qp_num = qp_.num();
  rdma_accept(request.get(), &answer);  // If this fails, the device is gone.
}

}  // namespace cordma::cm
