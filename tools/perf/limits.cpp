#include "limits.hpp"

#include "text.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace perf {
namespace {

enum class kind : std::uint8_t { time, rate, number };
struct description {
  const char* name;
  kind values;
};
/// In the order of `quantity`.
constexpr std::array<description, 12> descriptions{{{"p50", kind::time},
                                                    {"p90", kind::time},
                                                    {"p99", kind::time},
                                                    {"p99.9", kind::time},
                                                    {"max", kind::time},
                                                    {"mean", kind::time},
                                                    {"cpu", kind::time},
                                                    {"ops/s", kind::rate},
                                                    {"GB/s", kind::number},
                                                    {"Gbit/s", kind::number},
                                                    {"achieved", kind::number},
                                                    {"ratio", kind::number}}};

const description& description_of(quantity of) { return descriptions[std::size_t(of)]; }

struct unit {
  const char* name;
  double times;
};
constexpr std::array<unit, 4> time_units{{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
constexpr std::array<unit, 4> rate_units{{{"", 1}, {"k", 1e3}, {"K", 1e3}, {"M", 1e6}}};
constexpr std::array<unit, 1> number_units{{{"", 1}}};

template <class Units>
std::optional<double> scaled(const Units& units, double value, std::string_view suffix) {
  for (const unit& u : units)
    if (suffix == u.name) return value * u.times;
  return {};
}

const char* example_of(kind values) {
  if (values == kind::time) return "a time, such as 20us or 1.5ms";
  return values == kind::rate ? "a number, such as 200k or 1.5M" : "a number, such as 0.99";
}

std::optional<double> parse_value(kind values, std::string_view text) {
  std::size_t read = 0;
  double value = 0;
  const std::string word{text};
  try {
    value = std::stod(word, &read);
  } catch (const std::exception&) {
    return {};
  }
  if (!(value >= 0) || value > 1e18) return {};
  const std::string_view suffix = text.substr(read);
  if (values == kind::time) return scaled(time_units, value, suffix);
  return values == kind::rate ? scaled(rate_units, value, suffix)
                              : scaled(number_units, value, suffix);
}

double ns(std::chrono::nanoseconds t) { return double(t.count()); }

double value_of(quantity of, const result& r) {
  const histogram& h = r.ours.latencies;
  switch (of) {
    case quantity::p50: return ns(h.at(0.5));
    case quantity::p90: return ns(h.at(0.9));
    case quantity::p99: return ns(h.at(0.99));
    case quantity::p99_9: return ns(h.at(0.999));
    case quantity::max: return ns(h.max());
    case quantity::mean: return ns(h.mean());
    case quantity::cpu: return r.per_operation(std::uint64_t(r.ours.cost.cpu.count()));
    case quantity::ops: return r.per_second();
    case quantity::gigabytes: return r.gigabytes_per_second();
    case quantity::gigabits: return r.gigabits_per_second();
    case quantity::achieved: return r.what.rate > 0 ? r.per_second() / r.what.rate : 0;
    case quantity::ratio: return r.baseline ? r.baseline->ratio() : 0;
  }
  return 0;
}

std::string value_text(kind values, double value) {
  std::string out;
  if (values == kind::time) {
    append(out, "%.3f us", value / 1e3);
  } else {
    append(out, values == kind::rate ? "%.0f" : "%.4f", value);
  }
  return out;
}

}  // namespace

limit parse_limit(const std::string& option, std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const auto found =
      std::ranges::find_if(descriptions, [name](const description& d) { return name == d.name; });
  if (found == descriptions.end() || equals == std::string_view::npos) {
    std::string all;
    for (const description& d : descriptions)
      all += (all.empty() ? "" : ", ") + std::string{d.name};
    throw std::invalid_argument{option + " '" + std::string{text} +
                                "': write it as p99=20us; it bounds one of " + all};
  }
  const std::optional<double> value = parse_value(found->values, text.substr(equals + 1));
  if (!value) {
    throw std::invalid_argument{option + " '" + std::string{text} + "': " + found->name + " is " +
                                example_of(found->values)};
  }
  return {.of = quantity(found - descriptions.begin()),
          .is_most = option == "--fail-above",
          .value = *value,
          .text = std::string{text.substr(equals + 1)}};
}

void check_measured(const limit& bound, const job& what, bool has_baseline) {
  const std::string name = std::string{description_of(bound.of).name} + '=' + bound.text;
  if (bound.of == quantity::ratio && !has_baseline) {
    throw std::invalid_argument{name +
                                ": only --baseline measures the ratio; add it, or leave the "
                                "limit out"};
  }
  if (bound.of == quantity::achieved && what.rate == 0) {
    throw std::invalid_argument{name +
                                ": a part of --rate is achieved; add it, or leave the limit "
                                "out"};
  }
}

std::optional<std::string> broken(const limit& bound, const result& r) {
  const description& of = description_of(bound.of);
  if (r.operations() == 0)
    return to_string(r.what) + ": no operation ended, so " + of.name + " is not known";
  const double value = value_of(bound.of, r);
  if (bound.is_most ? value <= bound.value : value >= bound.value) return {};
  return to_string(r.what) + ": " + of.name + " is " + value_text(of.values, value) + ", " +
         (bound.is_most ? "above " : "below ") + bound.text;
}

}  // namespace perf
