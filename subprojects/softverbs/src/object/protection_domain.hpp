#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

namespace softverbs {

/// A protection domain; the program holds `handle`.
struct protection_domain {
  ibv_pd handle{};                      // First: pointers to it are cast back.
  std::atomic<std::uint32_t> users{0};  ///< MRs, windows, SRQs, AHs, QPs; dealloc answers EBUSY
};

[[nodiscard]] inline protection_domain& soft(ibv_pd* pd) noexcept {
  return *reinterpret_cast<protection_domain*>(pd);
}

}  // namespace softverbs
