#include "queue/receive_queue.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

namespace softverbs {

receive_ring::receive_ring(std::uint32_t requests_max, std::uint32_t sges_max,
                           const domain_memory* from)
    : capacity_{requests_max},
      sges_max_{sges_max},
      wqes_{std::bit_ceil(std::uint64_t{requests_max})},
      entries_{wqes_ * (1 + std::size_t{sges_max}), from, queue_resource::receive_queue} {}

int receive_ring::push(const ibv_recv_wr& wr) noexcept {
  if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > sges_max_) return EINVAL;
  if (size() == capacity_) return ENOMEM;
  ibv_sge* const to = &entries_[wqe_offset(tail_)];
  *to = {.addr = wr.wr_id, .length = static_cast<std::uint32_t>(wr.num_sge), .lkey = 0};
  std::copy_n(wr.sg_list, wr.num_sge, to + 1);
  ++tail_;
  return 0;
}

receive_request receive_ring::front() const noexcept {
  const ibv_sge* const oldest = &entries_[wqe_offset(head_)];
  return {oldest->addr, oldest->length, oldest + 1};
}

void receive_ring::pop() noexcept { ++head_; }

}  // namespace softverbs
