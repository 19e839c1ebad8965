#include <cordma/memory/local_mr.hpp>

#include <cordma/base/error.hpp>

#include <cstdint>

namespace cordma {

local_mr local_mr::keep(const const_local_mr_slice& part) {
  memory_block* const block = part.block();
  if (block == nullptr || !block->try_acquire(part.generation())) {
    throw error{{.code = errc::stale_slice,
                 .call = "local_mr::keep",
                 .detail = "memory that was freed, or that stands"}};
  }
  local_mr kept;
  kept.whole_ = {const_cast<std::byte*>(part.bytes().data()), part.size_bytes(), part.lkey(),
                 *block};
  kept.is_owner_ = false;
  return kept;
}

void local_mr::throw_not_remote() {
  throw error{{.code = errc::access_denied,
               .call = "local_mr::remote_slice",
               .detail = "registered without remote access: ask for remote_read, remote_write or "
                         "remote_atomic when allocating"}};
}

}  // namespace cordma
