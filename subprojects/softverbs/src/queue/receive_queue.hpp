#pragma once

#include "queue/adaptive_mutex.hpp"
#include "queue/queue_array.hpp"

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <span>

namespace softverbs {

/// A posted receive request.
struct receive_request {
  std::uint64_t wr_id;
  std::uint32_t sge_count;
  const ibv_sge* sges;  ///< valid until the request is popped
};

/// A ring of receive requests with their scatter lists; memory is allocated once. Callers lock.
class receive_ring {
 public:
  /// `from`: as of queue_array. \errors std::bad_alloc
  receive_ring(std::uint32_t requests_max, std::uint32_t sges_max,
               const domain_memory* from = nullptr);

  /// ENOMEM when full, EINVAL for a list that is too long.
  int push(const ibv_recv_wr& wr) noexcept;
  [[nodiscard]] bool empty() const noexcept { return head_ == tail_; }
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(tail_ - head_);
  }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::uint32_t sges_max() const noexcept { return sges_max_; }
  [[nodiscard]] receive_request front() const noexcept;  ///< not empty
  void pop() noexcept;

 private:
  /// The offset of a WQE in `entries_`. The first entry of a WQE holds the wr_id as the address and
  /// the number of SGEs as the length; the SGEs follow.
  [[nodiscard]] std::size_t wqe_offset(std::uint64_t index) const noexcept {
    return (index & (wqes_ - 1)) * (1 + std::size_t{sges_max_});
  }

  std::uint32_t capacity_;
  std::uint32_t sges_max_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
  std::uint64_t wqes_;  ///< capacity_ rounded up to a power of two
  queue_array<ibv_sge> entries_;
};

/// A shared receive queue; the program holds `handle`.
struct shared_receive_queue {
  shared_receive_queue(std::uint32_t requests_max, std::uint32_t sges_max,
                       const domain_memory* from)
      : ring{requests_max, sges_max, from} {}

  ibv_srq handle{};            // First: pointers to it are cast back.
  const ibv_pd* pd = nullptr;  ///< the domain whose memory it takes
  std::uint32_t number = 0;
  // A queue of an XRC domain has these two.
  ibv_xrcd* xrcd = nullptr;
  ibv_cq* cq = nullptr;  ///< the entries of what it receives
  std::atomic<std::uint32_t> users{0};
  adaptive_mutex mutex;
  receive_ring ring;
  std::uint32_t limit = 0;  ///< below this many: one IBV_EVENT_SRQ_LIMIT_REACHED, then 0
};

}  // namespace softverbs
