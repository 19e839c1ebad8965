#pragma once

#include "wire/ring.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace softverbs {

/// The rings of a simulated link, both of whose ends are in this process. Their memory serves later
/// links: a simulation makes thousands of links a second. \thread the simulation's.
class paired_rings {
 public:
  /// Returns rings that are empty and all zero, each with room for that many bytes. Null: the
  /// system lacks memory.
  [[nodiscard]] static std::shared_ptr<paired_rings> make(std::size_t room = ring_bytes) noexcept;
  paired_rings(std::unique_ptr<ring_memory> memory, std::size_t room) noexcept;
  ~paired_rings();
  paired_rings(const paired_rings&) = delete;
  paired_rings& operator=(const paired_rings&) = delete;

  /// The rings as an end sees them.
  [[nodiscard]] ring_view out(bool opener) const noexcept {
    ring_view one = opener ? memory_->out() : memory_->in();
    one.unusable = ring_bytes - room_;
    return one;
  }
  [[nodiscard]] ring_view in(bool opener) const noexcept { return out(!opener); }
  /// A ring without data, for links that have ended.
  [[nodiscard]] static ring_view none() noexcept;

  /// An end is closed, and had put that many bytes into its ring.
  void note_end(bool opener, std::uint64_t bytes) noexcept { used_[opener ? 0 : 1] = bytes; }

 private:
  std::unique_ptr<ring_memory> memory_;
  const std::size_t room_;
  std::uint64_t used_[2]{};  ///< bytes from the opener, and to it
};

}  // namespace softverbs
