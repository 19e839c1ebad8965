#pragma once

#include "meeting.hpp"

#include <cordma/connection/endpoint.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

// The kinds of meetings, for the factories of `cordma::meeting`, which say what they do.
namespace cordma::detail {

class pmix_client;

std::shared_ptr<meeting_kind> make_single_meeting();
std::vector<std::shared_ptr<meeting_kind>> make_in_process_meetings(unsigned size);
std::shared_ptr<meeting_kind> make_list_meeting(std::vector<endpoint> members, unsigned rank);

/// The terms of a meeting at rank 0.
struct meeting_point {
  endpoint address{};
  unsigned rank = 0;
  unsigned size = 1;
  bool is_one_host = false;  ///< All ranks are on this host.
  const char* advice = "";   ///< Ends the text of an address that is taken, or where rank 0 is not.
};
std::shared_ptr<meeting_kind> make_point_meeting(meeting_point where);

/// Returns true if `make_pmix_meeting` makes one.
bool has_pmix() noexcept;
std::shared_ptr<meeting_kind> make_pmix_meeting();
/// Makes one of another client; where cordma was built with PMIx.
std::shared_ptr<meeting_kind> make_pmix_meeting(pmix_client& client);

/// Reads the list of a file. \errors as `meeting::by_file`.
std::vector<endpoint> read_list(const std::string& path);

}  // namespace cordma::detail
