#include "trace.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string_view>

namespace cordma::sim::detail {

std::string trace_record::text() const {
  std::string made;
  std::size_t next = 0;
  std::array<char, 24> digits;
  for (std::string_view rest = what.text; !rest.empty();) {
    const std::size_t hole = rest.find("{}");
    made += rest.substr(0, hole);
    if (hole == std::string_view::npos || next == numbers.size()) break;
    std::snprintf(digits.data(), digits.size(), numbers[next] > 0xffff ? "0x%" PRIx64 : "%" PRIu64,
                  numbers[next]);
    made += digits.data();
    ++next;
    rest.remove_prefix(hole + 2);
  }
  return made;
}

std::vector<trace_record> trace::last_of(unsigned host) const {
  const recent& of = last_[host - 1];
  std::vector<trace_record> made;
  for (std::size_t n = of.count - std::min(of.count, kept); n < of.count; ++n)
    made.push_back(of.records[n % kept]);
  return made;
}

}  // namespace cordma::sim::detail
