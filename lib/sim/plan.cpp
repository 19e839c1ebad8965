#include "plan.hpp"

#include <cordma/base/error.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>

namespace cordma::sim::detail {
namespace {

constexpr std::array<std::string_view, decision_kinds> kind_names{"fault", "network", "schedule"};

[[noreturn]] void refuse(std::string_view what, std::string_view text) {
  throw std::system_error{EINVAL, std::generic_category(),
                          std::string{"plan: "}.append(what).append(" '").append(text).append("'")};
}

/// Calls `f` with each part of `text` between two of `separator`.
template <class F>
void for_each_part(std::string_view text, char separator, F f) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) f(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// \param part  that the message names
std::uint64_t number(std::string_view text, std::string_view part) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) refuse("not a number:", part);
  return value;
}

}  // namespace

bool decision_set::contains(std::uint64_t number) const noexcept {
  if (is_all_) return true;
  const auto after = std::ranges::upper_bound(ranges_, number, {}, &range::first);
  return after != ranges_.begin() && number <= (after - 1)->last;
}

std::string decision_set::text() const {
  if (is_all_) return "all";
  std::string made;
  for (const range& r : ranges_) {
    if (!made.empty()) made += ',';
    made += std::to_string(r.first);
    if (r.last != r.first) made += '-' + std::to_string(r.last);
  }
  return made.empty() ? "none" : made;
}

decision_set decision_set::parse(std::string_view text) {
  if (text == "all") return {};
  std::vector<range> ranges;
  if (text == "none") return decision_set{ranges};
  for_each_part(text, ',', [&](std::string_view part) {
    const std::size_t dash = part.find('-');
    const std::uint64_t first = number(part.substr(0, dash), part);
    const std::uint64_t last =
        dash == std::string_view::npos ? first : number(part.substr(dash + 1), part);
    if (last < first || (!ranges.empty() && first <= ranges.back().last))
      refuse("ranges go up:", text);
    ranges.push_back({first, last});
  });
  return decision_set{std::move(ranges)};
}

std::string plan::text() const {
  std::string made;
  for (std::size_t k = 0; k < decision_kinds; ++k) {
    if (k > 0) made += ' ';
    made += kind_names[k];
    made += '=';
    made += kept_[k].text();
  }
  return made;
}

plan plan::parse(std::string_view text) {
  plan made;
  for_each_part(text, ' ', [&](std::string_view part) {
    const std::size_t equals = std::min(part.find('='), part.size());
    const auto known = std::ranges::find(kind_names, part.substr(0, equals));
    if (known == kind_names.end() || equals == part.size())
      refuse("expected fault=, network= or schedule=, not", part);
    made.kept_[std::size_t(known - kind_names.begin())] =
        decision_set::parse(part.substr(equals + 1));
  });
  return made;
}

}  // namespace cordma::sim::detail
