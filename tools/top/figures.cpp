#include "figures.hpp"

namespace top {
namespace {

void add_to(std::optional<double>& sum, std::optional<double> one) {
  if (one) sum = sum.value_or(0) + *one;
}

std::optional<double> read_one(const page& from, std::string_view metric, std::string_view kind) {
  if (kind != moves_data) return kind.empty() ? from.sum(metric) : from.sum(metric, kind);
  std::optional<double> all;
  for (const std::string_view one : {"send", "write", "read", "atomic"})
    add_to(all, from.sum(metric, one));
  return all;
}

std::optional<double> rise(std::optional<double> before, std::optional<double> now) {
  if (!before || !now || *now < *before) return std::nullopt;
  return *now - *before;
}

}  // namespace

readings read(const page& from) {
  readings all;
  for (std::size_t n = 0; n < all_figures.size(); ++n) {
    const figure& one = all_figures[n];
    all.values[n] = read_one(from, one.metric, one.request);
    if (!one.divisor.empty()) all.divisors[n] = from.sum(one.divisor);
  }
  return all;
}

void figure_sum::add(const readings* before, const readings& now, seconds length) {
  for (std::size_t n = 0; n < all_figures.size(); ++n) {
    const figure_kind kind = all_figures[n].kind;
    if (kind == figure_kind::now || kind == figure_kind::bytes) {
      add_to(values_[n], now.values[n]);
    } else if (before != nullptr && length.count() > 0) {
      const std::optional<double> risen = rise(before->values[n], now.values[n]);
      if (kind == figure_kind::ratio) {
        add_to(values_[n], risen);
        add_to(divisors_[n], rise(before->divisors[n], now.divisors[n]));
      } else if (risen) {
        add_to(values_[n], *risen / length.count());
      }
    }
  }
}

figure_values figure_sum::take() const {
  figure_values all = values_;
  for (std::size_t n = 0; n < all.size(); ++n) {
    if (all_figures[n].kind != figure_kind::ratio) continue;
    const bool is_known = values_[n] && divisors_[n] && *divisors_[n] > 0;
    all[n] = is_known ? std::optional{*values_[n] / *divisors_[n]} : std::nullopt;
  }
  return all;
}

}  // namespace top
