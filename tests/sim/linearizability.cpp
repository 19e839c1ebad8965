#include "linearizability.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace cordma::test {
namespace {

/// Searches an order by Wing and Gong's algorithm: an operation can be next if it began before any
/// of those that are left ended. What was tried already is remembered, as by Lowe.
class order_search {
 public:
  explicit order_search(std::vector<register_operation>&& history)
      : all_{std::move(history)}, is_done_(all_.size()) {}

  bool find() {
    if (is_complete()) return true;
    if (!tried_.insert({is_done_, value_}).second) return false;
    const std::int64_t first_end = first_end_of_rest();
    for (std::size_t i = 0; i < all_.size() && all_[i].begin <= first_end; ++i) {
      if (is_done_[i] || (!all_[i].is_write && all_[i].value != value_)) continue;
      const std::uint64_t before = std::exchange(value_, all_[i].value);
      is_done_[i] = true;
      if (find()) return true;
      is_done_[i] = false;
      value_ = before;
    }
    return false;
  }

 private:
  [[nodiscard]] bool is_complete() const {
    for (std::size_t i = 0; i < all_.size(); ++i)
      if (!is_done_[i] && all_[i].end != register_operation::open) return false;
    return true;
  }
  [[nodiscard]] std::int64_t first_end_of_rest() const {
    std::int64_t first = register_operation::open;
    for (std::size_t i = 0; i < all_.size(); ++i)
      if (!is_done_[i]) first = std::min(first, all_[i].end);
    return first;
  }

  const std::vector<register_operation> all_;  ///< in the order of their beginnings
  std::vector<bool> is_done_;
  std::uint64_t value_ = 0;
  std::set<std::pair<std::vector<bool>, std::uint64_t>> tried_;
};

}  // namespace

bool is_linearizable(std::span<const register_operation> history) {
  std::vector<register_operation> ordered;
  for (const register_operation& one : history)
    if (one.is_write || one.end != register_operation::open) ordered.push_back(one);
  std::ranges::sort(ordered, {}, [](const register_operation& one) {
    return std::tuple{one.begin, one.end, one.is_write, one.value};
  });
  return order_search{std::move(ordered)}.find();
}

}  // namespace cordma::test
