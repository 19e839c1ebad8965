#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace softverbs::fuzz {

/// Changes bytes of a ring while the victim parses them. Where loads are traced (fuzzing builds) a
/// change comes right before the chosen load, the same each time. Elsewhere a thread makes it
/// whenever it gets to.
class disturber {
 public:
  disturber();
  ~disturber();
  disturber(const disturber&) = delete;
  disturber& operator=(const disturber&) = delete;

  struct change {
    std::byte* target;          ///< this byte of the ring changes
    std::uint8_t flip;          ///< the bits that change
    std::uint16_t page_offset;  ///< when the word at this place in its page ...
    std::uint8_t loads_before;  ///< ... was loaded so often
  };
  static constexpr std::size_t changes_max = 8;

  void add(const change& one) noexcept;
  void begin(bool by_thread) noexcept;  ///< from here on changes happen
  void end() noexcept;                  ///< ends the changes, and empties the plan

  static void on_load(const void* address) noexcept;

 private:
  void disturb() noexcept;

  std::array<change, changes_max> plan_{};
  std::atomic<std::size_t> planned_{0};
  std::atomic<int> phase_{0};  ///< 0: rest, 1: disturb, 2: leave
  std::atomic<bool> busy_{false};
  std::thread thread_;
};

}  // namespace softverbs::fuzz
