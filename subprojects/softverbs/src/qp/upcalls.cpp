#include "node/upcalls.hpp"

#include "qp/data_path.hpp"

namespace softverbs {

void run(node& home, std::uint32_t qpn) noexcept {
  qp_slot* slot = home.find(qpn);
  if (slot == nullptr) return;
  std::lock_guard send{slot->send};
  queue_pair* qp = slot->qp;
  if (qp == nullptr) return;
  if (qp->state.load(std::memory_order_acquire) != IBV_QPS_ERR) execute(*qp);
  if (qp->state.load(std::memory_order_acquire) == IBV_QPS_ERR) {
    std::lock_guard receive{slot->receive};
    flush(*qp);
  }
}

void on_request(node& home, link& from, const frame_header& header,
                const std::byte* payload) noexcept {
  qp_slot* slot = home.find(header.destination_qpn);
  if (slot == nullptr) return;
  std::lock_guard lock{slot->receive};
  queue_pair* qp = slot->qp;
  const bool taken = qp != nullptr && listens_to(*qp, header) &&
                     (qp->init.qp_type == IBV_QPT_UD || qp->peer == from.peer());
  if (!taken) return turn_away(*slot, from, header);
  const incoming piece{.header = header, .bytes = payload, .read_into = nullptr, .from = &from};
  const reply answer = take(*qp, piece);
  if (header.transport == service::rc) owe(*qp, piece, answer);
}

}  // namespace softverbs
