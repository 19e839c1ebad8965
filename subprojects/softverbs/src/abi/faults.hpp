#pragma once

#include <unordered_set>

// The objects that faults were asked for (softverbs.h), so that softverbs_reset() finds them.

namespace softverbs {
struct queue_pair;
struct completion_queue;
}  // namespace softverbs

namespace softverbs::faults {

/// Strikes an object off the list before it is destroyed, so that nobody finds it there when it is
/// gone, and puts it back when it was not. Destroying may wait for the program, so no lock is held.
class leaving {
 public:
  explicit leaving(void* object) noexcept;
  [[nodiscard]] int ended(int error) noexcept;  ///< passes it on; 0: the object is gone

 private:
  std::unordered_set<queue_pair*>::node_type qp_;
  std::unordered_set<completion_queue*>::node_type cq_;
};

}  // namespace softverbs::faults
