#pragma once

#include "qp/queue_pair.hpp"

#include <cstdint>

namespace softverbs {

/// Holds qp_slot::send for a change of the QP. The mutex is not fair: a queue that is never empty
/// would take it again and again. For that reason run() yields to a change, which kicks the QP at
/// its end.
class change_lock {
 public:
  explicit change_lock(const queue_pair& qp) noexcept
      : local_node_{*qp.local_node}, slot_{*qp.slot}, qpn_{qp.number()} {
    slot_.changes.fetch_add(1);
    slot_.send.lock();
  }
  ~change_lock() {
    slot_.send.unlock();
    slot_.changes.fetch_sub(1);
    local_node_.kick(qpn_);
  }
  change_lock(const change_lock&) = delete;
  change_lock& operator=(const change_lock&) = delete;

 private:
  node& local_node_;
  qp_slot& slot_;
  std::uint32_t qpn_;
};

}  // namespace softverbs
