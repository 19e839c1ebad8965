#include "finding.hpp"

#include <algorithm>

namespace doctor {

const char* to_string(severity how) noexcept {
  switch (how) {
    case severity::ok: return "ok";
    case severity::note: return "note";
    case severity::warning: return "warning";
    case severity::error: return "error";
  }
  return "unknown";
}

void report::add(finding f) {
  all_.push_back(std::move(f));
  if (on_add_) on_add_(all_.back());
}

const finding* report::find(const std::string& check) const noexcept {
  const auto found = std::find_if(all_.rbegin(), all_.rend(),
                                  [&](const finding& one) { return one.check == check; });
  return found == all_.rend() ? nullptr : &*found;
}

std::size_t report::count(severity how) const noexcept {
  return std::size_t(
      std::ranges::count_if(all_, [how](const finding& one) { return one.severity == how; }));
}

severity report::worst() const noexcept {
  const auto found = std::ranges::max_element(all_, {}, &finding::severity);
  return found == all_.end() ? severity::ok : found->severity;
}

}  // namespace doctor
