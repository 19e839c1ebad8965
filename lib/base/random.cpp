#include "base/random.hpp"

#include "base/failures.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace cordma::detail {
namespace {

/// Up to 256 bytes come whole once the kernel has its entropy (getrandom(2)).
constexpr std::size_t whole_bytes = 256;

thread_local random_source* replaced = nullptr;  // Null: getrandom(2).

}  // namespace

random_scope::random_scope(random_source& source) noexcept
    : outer_{std::exchange(replaced, &source)} {}
random_scope::~random_scope() { replaced = outer_; }

void random_bytes(std::span<std::byte> out) {
  if (replaced != nullptr) return replaced->fill(out);
  while (!out.empty()) {
    const ssize_t count = ::getrandom(out.data(), std::min(out.size(), whole_bytes), 0);
    if (count >= 0) {
      out = out.subspan(std::size_t(count));
    } else if (errno != EINTR) {
      throw_errno(errno, "getrandom");
    }
  }
}

}  // namespace cordma::detail
