#pragma once

#include <unordered_set>

// The list of objects with faults (softverbs.h), for softverbs_reset().

namespace softverbs {
struct queue_pair;
struct completion_queue;
}  // namespace softverbs

namespace softverbs::faults {

/// Removes an object from the list before it is destroyed, and puts it back if that failed. No lock
/// is held in between, because destroying may wait for the program.
class leaving {
 public:
  explicit leaving(void* object) noexcept;
  [[nodiscard]] int ended(
      int error) noexcept;  ///< call with the result; 0: the object is destroyed

 private:
  std::unordered_set<queue_pair*>::node_type qp_;
  std::unordered_set<completion_queue*>::node_type cq_;
};

}  // namespace softverbs::faults
