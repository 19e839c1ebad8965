#include "guarded_copy.hpp"

#include "base/failures.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace cordma {

void guarded_copy(std::byte* to, std::span<const std::byte> from) {
  const iovec into{to, from.size()};
  const iovec source{const_cast<std::byte*>(from.data()), from.size()};
  const ssize_t copied = ::process_vm_readv(::getpid(), &into, 1, &source, 1, 0);
  if (copied == ssize_t(from.size())) return;
  detail::throw_errno(
      copied < 0 ? errno : EFAULT, "process_vm_readv",
      detail::detail_text("%zu bytes from %p to %p: invalidate such memory before it "
                          "is unmapped",
                          from.size(), static_cast<const void*>(from.data()),
                          static_cast<const void*>(to)));
}

}  // namespace cordma
