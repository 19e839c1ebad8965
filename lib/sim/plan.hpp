#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cordma::sim::detail {

enum class decision_kind : std::uint8_t {
  fault,     ///< whether something goes wrong
  network,   ///< how long a frame takes
  schedule,  ///< the order of steps, and how long each takes
};
inline constexpr std::size_t decision_kinds = 3;

/// Numbers of decisions: all, or ranges of them.
class decision_set {
 public:
  struct range {
    std::uint64_t first, last;
    bool operator==(const range&) const = default;
  };
  decision_set() = default;  ///< all
  explicit decision_set(std::vector<range> ranges) : ranges_{std::move(ranges)}, is_all_{false} {}

  [[nodiscard]] bool contains(std::uint64_t number) const noexcept;
  [[nodiscard]] std::string text() const;
  /// \errors EINVAL; the message names the text.
  static decision_set parse(std::string_view text);
  bool operator==(const decision_set&) const = default;

 private:
  std::vector<range> ranges_;  ///< sorted, and apart
  bool is_all_ = true;
};

/// Decisions of a seed that are kept. The others are taken back: no fault, no delay, first come
/// first served. A run that is found to be wrong is shrunk to the fewest decisions that show it.
class plan {
 public:
  [[nodiscard]] const decision_set& of(decision_kind kind) const noexcept {
    return kept_[std::size_t(kind)];
  }
  [[nodiscard]] plan with(decision_kind kind, decision_set kept) const {
    plan changed = *this;
    changed.kept_[std::size_t(kind)] = std::move(kept);
    return changed;
  }
  /// "fault=3,17 network=none schedule=all"
  [[nodiscard]] std::string text() const;
  /// \errors EINVAL; the message names the wrong part.
  static plan parse(std::string_view text);
  bool operator==(const plan&) const = default;

 private:
  std::array<decision_set, decision_kinds> kept_;
};

}  // namespace cordma::sim::detail
