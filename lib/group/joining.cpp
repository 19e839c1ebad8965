#include <cordma/group/joining.hpp>

#include "meeting_host.hpp"
#include "meeting_kinds.hpp"
#include "meeting_variables.hpp"

#include <cstdio>
#include <utility>

namespace cordma {

meeting::meeting(std::shared_ptr<detail::meeting_kind> kind) noexcept : kind_{std::move(kind)} {}

meeting meeting::by_launcher() {
  const detail::launchers of = detail::launchers_of_environment();
  const bool prefers_torchrun = of.torchrun && (of.torchrun_is_inner || !detail::has_pmix());
  if (of.pmix && !prefers_torchrun) return by_pmix();
  if (of.torchrun) return by_environment();
  std::fputs("cordma: no launcher's variables (PMIx, or RANK and WORLD_SIZE): a group of one\n",
             stderr);
  return single();
}

meeting meeting::by_pmix() { return meeting{detail::make_pmix_meeting()}; }

meeting meeting::by_environment() {
  return meeting{detail::make_point_meeting(detail::point_of_environment())};
}

meeting meeting::at(endpoint address, unsigned rank, unsigned size) {
  detail::meeting_point where;
  where.is_one_host = detail::is_this_host(address);
  where.address = std::move(address);
  where.rank = rank;
  where.size = size;
  return meeting{detail::make_point_meeting(std::move(where))};
}

meeting meeting::by_list(std::vector<endpoint> members, unsigned rank) {
  return meeting{detail::make_list_meeting(std::move(members), rank)};
}

meeting meeting::by_file(std::string_view path, unsigned rank) {
  return by_list(detail::read_list(std::string{path}), rank);
}

meeting meeting::single() { return meeting{detail::make_single_meeting()}; }

std::vector<meeting> meeting::in_process(unsigned size) {
  std::vector<meeting> ranks;
  for (std::shared_ptr<detail::meeting_kind>& kind : detail::make_in_process_meetings(size))
    ranks.emplace_back(std::move(kind));
  return ranks;
}

}  // namespace cordma
