#pragma once

#include "meeting.hpp"

#include <cordma/connection/endpoint.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

// The kinds of meetings, for the factories of `cordma::meeting`, which say what they do.
namespace cordma::detail {

std::shared_ptr<meeting_kind> make_single_meeting();
std::vector<std::shared_ptr<meeting_kind>> make_in_process_meetings(unsigned size);
std::shared_ptr<meeting_kind> make_list_meeting(std::vector<endpoint> members, unsigned rank);
std::vector<endpoint> read_list(const std::string& path);

}  // namespace cordma::detail
