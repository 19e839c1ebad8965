#include "queue/receive_queue.hpp"

#include <algorithm>
#include <cerrno>

namespace softverbs {

receive_ring::receive_ring(std::uint32_t requests_max, std::uint32_t sges_max)
    : capacity_{requests_max},
      sges_max_{sges_max},
      entries_(requests_max),
      sges_(std::size_t{requests_max} * sges_max) {}

int receive_ring::push(const ibv_recv_wr& wr) noexcept {
  if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > sges_max_) return EINVAL;
  if (size() == capacity_) return ENOMEM;
  const std::uint64_t place = tail_ % capacity_;
  entries_[place] = {wr.wr_id, static_cast<std::uint32_t>(wr.num_sge)};
  std::copy_n(wr.sg_list, wr.num_sge, sges_.data() + place * sges_max_);
  ++tail_;
  return 0;
}

receive_request receive_ring::front() const noexcept {
  const std::uint64_t place = head_ % capacity_;
  const entry& oldest = entries_[place];
  return {oldest.wr_id, oldest.sge_count, sges_.data() + place * sges_max_};
}

void receive_ring::pop() noexcept { ++head_; }

}  // namespace softverbs
