#pragma once

#include "group/algorithm_table.hpp"

#include <functional>
#include <string_view>

namespace cordma::detail {

/// One change of a table of algorithms: a row, or the length of a segment.
struct table_change {
  algorithm_table::row row{};
  std::size_t segment_bytes = 0;  ///< 0: the change is a row.
};

/// Reads the changes that algorithm_table.hpp describes.
/// \errors EINVAL: names the change that is none, and what there is.
void read_changes(std::string_view text, const std::function<void(const table_change&)>& add);

}  // namespace cordma::detail
