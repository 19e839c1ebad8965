#pragma once

#include "finding.hpp"

#include <string>
#include <string_view>

namespace doctor {

/// Formats one finding as lines of text.
/// \param is_verbose  also says why a value matters that is as it should be.
std::string text(const finding& f, bool is_verbose);
/// Formats the last line: how many findings there are of each severity.
std::string summary(const report& r);
/// Formats all findings as one JSON object, which ends with a newline.
std::string json(const report& r, std::string_view device, std::string_view peer);

}  // namespace doctor
