#pragma once

#include "node/node.hpp"
#include "object/context.hpp"

#include <cerrno>
#include <cstddef>
#include <memory>

namespace softverbs {

/// The counts of the process that opened the context.
[[nodiscard]] inline object_counts& counts_of(ibv_context* ctx) noexcept {
  return soft(ctx).local_node->counts();
}

/// Sets errno and returns the null of a verb that created no object.
inline std::nullptr_t fail(int error) noexcept {
  errno = error;
  return nullptr;
}

}  // namespace softverbs
