#include "meeting_kinds.hpp"

#include "base/failures.hpp"

namespace cordma::detail {

bool has_pmix() noexcept { return false; }

std::shared_ptr<meeting_kind> make_pmix_meeting() {
  throw_failure(errc::not_supported, "meeting::by_pmix",
                "cordma was built without PMIx: install its headers (libpmix-dev) and build "
                "cordma with -Dpmix=enabled");
}

}  // namespace cordma::detail
