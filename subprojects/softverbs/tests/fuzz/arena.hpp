#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace softverbs::fuzz {

/// Pages in which the victim's memory lies between canaries. All memory that no peer may read is
/// full of a secret that only a leak could show it.
class arena {
 public:
  struct zone {
    std::byte* at = nullptr;
    std::size_t bytes = 0;
  };
  enum class filled : std::uint8_t { plain, secret };

  arena();
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;

  /// The next zone, canaries before and after it. `writable`: its bytes may change.
  zone add(std::size_t bytes, filled with, bool writable);
  /// A part of a zone, whose bytes may change.
  void make_writable(std::byte* at, std::size_t bytes, filled with);

  void check_writes() const noexcept;
  /// Ends the process if `bytes`, which left the victim, hold the arena's secret.
  static void check_leak(const std::byte* bytes, std::size_t count) noexcept;

 private:
  static constexpr std::size_t size = std::size_t{16} * 4096;
  std::byte* base_;
  std::size_t used_;
  std::vector<std::byte> image_;    ///< the contents, where they must not change
  std::vector<std::uint8_t> free_;  ///< 1: the byte may change
  struct range {
    std::size_t from;
    std::size_t to;
  };
  void find_fixed();
  std::vector<range> fixed_;
};

}  // namespace softverbs::fuzz
