#include <cordma/verbs/access.hpp>

#include <utility>

namespace cordma::verbs {

std::string to_string(access flags) {
  static constexpr std::pair<access, const char*> names[] = {
      {access::local_write, "local_write"},
      {access::remote_write, "remote_write"},
      {access::remote_read, "remote_read"},
      {access::remote_atomic, "remote_atomic"},
      {access::mw_bind, "mw_bind"},
      {access::zero_based, "zero_based"},
      {access::on_demand, "on_demand"},
      {access::hugetlb, "hugetlb"},
      {access::relaxed_ordering, "relaxed_ordering"},
  };
  std::string text;
  for (const auto& [flag, name] : names) {
    if (!allows(flags, flag)) continue;
    if (!text.empty()) text += '|';
    text += name;
  }
  return text.empty() ? "none" : text;
}

}  // namespace cordma::verbs
