#pragma once

#include <string>

namespace softverbs::run {

/// The libraries that are preloaded.
struct libraries {
  std::string verbs;    ///< libsoftverbs.so.0
  std::string rdma_cm;  ///< libsoftverbs_cm.so.0
};

/// The libraries that belong to this program: in its own folder (a build tree), or in the library
/// folder beside it (an installed tree). \errors std::runtime_error.
[[nodiscard]] libraries find_libraries();

/// LD_PRELOAD's value: what is there already stays ahead, since a sanitizer must come first.
[[nodiscard]] std::string preload_value(const libraries&);

}  // namespace softverbs::run
