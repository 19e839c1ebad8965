#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

namespace softverbs {

/// The file that the processes of an XRC domain share. A domain without one is a process's own.
struct xrc_domain_id {
  std::uint64_t inode = 0;   ///< own: a number of this process
  std::uint32_t device = 0;  ///< own: own_device
  static constexpr std::uint32_t own_device = ~std::uint32_t{0};
  [[nodiscard]] bool is_shared() const noexcept { return device != own_device; }
  friend bool operator==(const xrc_domain_id&, const xrc_domain_id&) noexcept = default;
};

/// An open XRC domain; the program holds `handle`.
struct xrc_domain {
  ibv_xrcd handle{};  // First: pointers to it are cast back.
  xrc_domain_id id;
  std::atomic<std::uint32_t> users{0};  ///< receive queues and queue pairs; close answers EBUSY
};

[[nodiscard]] inline xrc_domain& soft(ibv_xrcd* xrcd) noexcept {
  return *reinterpret_cast<xrc_domain*>(xrcd);
}

}  // namespace softverbs
