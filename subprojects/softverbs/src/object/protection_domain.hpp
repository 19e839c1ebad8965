#pragma once

#include "queue/queue_array.hpp"

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace softverbs {

/// A thread domain; the program holds `handle`. soft0's queues keep their locks in it.
struct thread_domain {
  ibv_td handle{};                      // First: pointers to it are cast back.
  std::atomic<std::uint32_t> users{0};  ///< parent domains; dealloc answers EBUSY
};

/// A protection domain, or a parent domain, which stands for another one; the program holds
/// `handle`.
struct protection_domain {
  ibv_pd handle{};  // First: pointers to it are cast back.
  /// MRs, windows, SRQs, AHs, QPs, and the parent domains of it; dealloc answers EBUSY.
  std::atomic<std::uint32_t> users{0};
  // The rest belongs to parent domains.
  ibv_pd* of = nullptr;            ///< the domain that it was made of
  const ibv_pd* origin = nullptr;  ///< the protection domain that it stands for
  thread_domain* thread = nullptr;
  std::unique_ptr<domain_memory> memory;  ///< null: default memory
};

[[nodiscard]] inline protection_domain& soft(ibv_pd* pd) noexcept {
  return *reinterpret_cast<protection_domain*>(pd);
}

/// The protection domain for which `pd` stands: keys, queue pairs and address handles compare it.
[[nodiscard]] inline const ibv_pd* origin_of(const ibv_pd* pd) noexcept {
  const auto* const origin = reinterpret_cast<const protection_domain*>(pd)->origin;
  return origin != nullptr ? origin : pd;
}

[[nodiscard]] inline bool is_parent_domain(const ibv_pd* pd, const ibv_context* ctx) noexcept {
  return pd != nullptr && pd->context == ctx && origin_of(pd) != pd;
}

/// The program's functions for the memory of queues in this domain; null: default memory.
[[nodiscard]] inline const domain_memory* memory_of(const ibv_pd* pd) noexcept {
  return pd == nullptr ? nullptr : reinterpret_cast<const protection_domain*>(pd)->memory.get();
}

}  // namespace softverbs
