#pragma once

#include <atomic>

namespace softverbs::entry {

/// Whether anything out of the ordinary is up: a verb told to fail (softverbs.h), or this is the
/// child of a fork, whose inherited objects answer EIO. The one thing that each entry point looks
/// at.
extern std::atomic<bool> attention;

int trouble(const char* verb, const void* context) noexcept;  ///< the error to fail with now, or 0

/// `if (int e = entry::refused("ibv_post_send", qp->context)) return e;`
[[nodiscard]] inline int refused(const char* verb, const void* context) noexcept {
  return attention.load(std::memory_order_relaxed) ? trouble(verb, context) : 0;
}

}  // namespace softverbs::entry
