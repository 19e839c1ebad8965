#include "trace.hpp"

namespace cordma::sim::detail {

std::string trace_record::text() const {
  std::string made;
  append_to(made);
  return made;
}

std::vector<trace_record> trace::last_of(unsigned host) const {
  std::vector<trace_record> made;
  for_each_last(host, [&](const trace_record& r) { made.push_back(r); });
  return made;
}

}  // namespace cordma::sim::detail
