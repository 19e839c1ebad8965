#pragma once

#include "object/xrc_queues.hpp"
#include "qp/data_path.hpp"

#include <cstdint>

// Targets of XRC (IBTA vol. 1, annex A14): a queue pair that takes requests for the receive queues
// of its domain. Each request names its queue, whose domain, completion queue and receives it uses.

namespace softverbs {

/// The receive queue that a request names: atomics have no immediate data, and others no operands.
[[nodiscard]] inline std::uint32_t named_queue(const frame_header& header) noexcept {
  return is_atomic(header.kind) ? header.immediate : static_cast<std::uint32_t>(header.operand[0]);
}
inline void name_queue(frame_header& header, std::uint32_t number) noexcept {
  if (is_atomic(header.kind))
    header.immediate = number;
  else
    header.operand[0] = number;
}

/// Makes an initiator's header name the queue of the request at the head.
inline void name_queue_of_head(queue_pair& initiator, frame_header& header) noexcept {
  name_queue(header, initiator.queue_of(initiator.sends.next));
}

[[nodiscard]] inline bool is_target(const queue_pair& qp) noexcept {
  return qp.type() == IBV_QPT_XRC_RECV;
}

/// Lends a receive queue to a target while a piece of a request is executed. Under slot->receive.
class lent_queue {
 public:
  lent_queue(queue_pair& target, std::uint32_t number) noexcept;
  ~lent_queue();
  lent_queue(const lent_queue&) = delete;
  lent_queue& operator=(const lent_queue&) = delete;
  explicit operator bool() const noexcept { return pin_.get() != nullptr; }

 private:
  queue_pair& target_;
  xrc_queue_pin pin_;
};

}  // namespace softverbs
