#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace softverbs {

/// Counts the live objects of a kind against the limit that the device names.
class object_count {
 public:
  /// False at the limit.
  bool add(int limit) noexcept {
    if (count_.fetch_add(1) < limit) return true;
    count_.fetch_sub(1);
    return false;
  }
  void remove() noexcept { count_.fetch_sub(1); }

 private:
  std::atomic<int> count_{0};
};

}  // namespace softverbs
