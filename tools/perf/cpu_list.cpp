#include "cpu_list.hpp"

#include <cordma/runtime/runtime_group.hpp>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string>

namespace perf {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw std::invalid_argument{"--pin '" + std::string{text} + "': " + why};
}

unsigned parse_cpu(std::string_view text, std::string_view digits) {
  unsigned value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (read.ec != std::errc{} || read.ptr != digits.data() + digits.size())
    refuse(text, "not CPUs; write them as 0,2,4-7");
  return value;
}

void check_allowed(std::string_view text, unsigned cpu, const std::vector<unsigned>& allowed) {
  if (std::ranges::find(allowed, cpu) != allowed.end()) return;
  std::string names;
  for (const unsigned a : allowed) {
    if (!names.empty()) names += ',';
    names += std::to_string(a);
  }
  refuse(text,
         "CPU " + std::to_string(cpu) + " is none that this process may use; those are " + names);
}

}  // namespace

std::vector<unsigned> parse_cpus(std::string_view text) {
  const std::vector<unsigned> allowed = cordma::runtime_group::allowed_cpus();
  std::vector<unsigned> all;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view part = text.substr(at, comma - at);
    const std::size_t dash = part.find('-');
    const unsigned from = parse_cpu(text, part.substr(0, dash));
    const unsigned to =
        dash == std::string_view::npos ? from : parse_cpu(text, part.substr(dash + 1));
    if (from > to) refuse(text, "a range goes from a small number to a larger one");
    // The first CPU that is not allowed ends the loop, however long the range is.
    for (unsigned cpu = from;; ++cpu) {
      check_allowed(text, cpu, allowed);
      all.push_back(cpu);
      if (cpu == to) break;
    }
    at = comma + 1;
  }
  return all;
}

std::vector<unsigned> cpus_for(const std::vector<unsigned>& all, std::size_t first,
                               std::size_t threads) {
  if (all.empty()) return {};
  if (all.size() < first + threads) {
    throw std::invalid_argument{"--pin: " + std::to_string(all.size()) + " CPU(s) for " +
                                std::to_string(first + threads) +
                                " threads; name more, or use fewer --threads"};
  }
  const auto begin = all.begin() + std::ptrdiff_t(first);
  return {begin, begin + std::ptrdiff_t(threads)};
}

}  // namespace perf
