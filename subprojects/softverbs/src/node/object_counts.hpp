#pragma once

#include <atomic>

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
  [[nodiscard]] unsigned now() const noexcept { return static_cast<unsigned>(count_.load()); }

 private:
  std::atomic<int> count_{0};
};

/// The live objects of a process.
struct object_counts {
  object_count contexts;
  object_count domains;
  object_count regions;
  object_count windows;
  object_count queues;
  object_count channels;
  object_count queue_pairs;
  object_count shared_queues;
  object_count handles;
};

}  // namespace softverbs
