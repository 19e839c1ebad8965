#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
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

/// Sets errno and returns the null of a verb that created no object.
inline std::nullptr_t fail(int error) noexcept {
  errno = error;
  return nullptr;
}

}  // namespace softverbs
