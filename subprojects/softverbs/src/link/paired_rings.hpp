#pragma once

#include "wire/ring.hpp"

#include <cstdint>
#include <memory>

namespace softverbs {

/// The rings of a simulated link, both of whose ends are in this process. Their memory serves later
/// links: a simulation makes thousands of links a second. \thread the simulation's.
class paired_rings {
 public:
  /// Returns rings that are empty and all zero. Null: the system lacks memory.
  [[nodiscard]] static std::shared_ptr<paired_rings> make() noexcept;
  explicit paired_rings(std::unique_ptr<ring_memory> memory) noexcept;
  ~paired_rings();
  paired_rings(const paired_rings&) = delete;
  paired_rings& operator=(const paired_rings&) = delete;

  /// The rings as an end sees them.
  [[nodiscard]] ring_view out(bool opener) const noexcept {
    return opener ? memory_->out() : memory_->in();
  }
  [[nodiscard]] ring_view in(bool opener) const noexcept { return out(!opener); }
  /// A ring without data, for links that have ended.
  [[nodiscard]] static ring_view none() noexcept;

  /// An end is closed, and had put that many bytes into its ring.
  void note_end(bool opener, std::uint64_t bytes) noexcept { used_[opener ? 0 : 1] = bytes; }

 private:
  std::unique_ptr<ring_memory> memory_;
  std::uint64_t used_[2]{};  ///< bytes from the opener, and to it
};

}  // namespace softverbs
