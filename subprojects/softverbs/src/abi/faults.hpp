#pragma once

#include <mutex>

// The objects that faults were asked for (softverbs.h), so that softverbs_reset() finds them.

namespace softverbs::faults {

/// Strikes an object off the list when it was destroyed. Lives around the destroying call, so that
/// nobody lists another object at the same address in between.
class leaving {
 public:
  explicit leaving(void* object) noexcept;
  [[nodiscard]] int ended(int error) const noexcept;  ///< passes it on; 0: the object is gone

 private:
  void* object_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace softverbs::faults
