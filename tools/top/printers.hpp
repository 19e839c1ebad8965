#pragma once

#include "programs.hpp"

#include <cstddef>
#include <span>
#include <string>

namespace top {

/// Returns a number in six columns: "12", "12.3k", "1.2M", "-" for one that is not known.
std::string short_number(std::optional<double> value, figure_kind kind);

/// Returns the table: a line of headings, then one for each program. Lines end with "\n", and have
/// at most `columns`: figures that do not fit are left out, whole. 0: there is no limit.
std::string table(std::span<const program_line> lines, std::size_t columns = 0);

/// Returns one line of JSON. \param at  seconds since cordma-top began.
std::string json(std::span<const program_line> lines, seconds at);

}  // namespace top
