#pragma once

#include "object/xrc_domain.hpp"
#include "queue/receive_queue.hpp"

#include <cstdint>
#include <utility>

// The receive queues of XRC domains by their numbers, which have the layout of QP numbers: any
// process finds the queue's process by the number.

namespace softverbs {

class node;

/// Gives the queue a number and lists it. 0: no number is free. \errors std::bad_alloc
std::uint32_t list_xrc_queue(node& local_node, shared_receive_queue& srq);
/// Takes the queue out of the list. Returns when no thread uses it any more.
void unlist_xrc_queue(const shared_receive_queue& srq) noexcept;

/// A listed queue of this process, which stays listed meanwhile.
class xrc_queue_pin {
 public:
  /// Finds no queue if the number is not listed, or if its domain is another one.
  xrc_queue_pin(std::uint32_t number, const xrc_domain_id& domain) noexcept;
  ~xrc_queue_pin();
  xrc_queue_pin(const xrc_queue_pin&) = delete;
  xrc_queue_pin& operator=(const xrc_queue_pin&) = delete;
  [[nodiscard]] shared_receive_queue* get() const noexcept { return srq_; }

 private:
  shared_receive_queue* srq_ = nullptr;
  std::uint32_t number_;
};

}  // namespace softverbs
