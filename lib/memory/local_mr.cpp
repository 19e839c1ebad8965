#include <cordma/memory/local_mr.hpp>

#include "base/failures.hpp"

namespace cordma {

local_mr local_mr::keep(const const_local_mr_slice& part) {
  memory_block* const block = part.block();
  if (block == nullptr || !block->try_acquire(part.generation())) {
    detail::throw_failure(errc::stale_slice, "local_mr::keep",
                          "memory that was freed, or that stands");
  }
  local_mr kept;
  kept.whole_ = {const_cast<std::byte*>(part.bytes().data()), part.size_bytes(), part.lkey(),
                 *block};
  kept.is_owner_ = false;
  return kept;
}

void local_mr::throw_not_remote() {
  detail::throw_failure(errc::access_denied, "local_mr::remote_slice",
                        "registered without remote access: ask for remote_read, remote_write or "
                        "remote_atomic when allocating");
}

}  // namespace cordma
