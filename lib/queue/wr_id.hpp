#pragma once

#include <cstdint>

namespace cordma {

/// The 64 bits that a CQE returns. They name the queue pair's index in its driver, the index's
/// generation, the side, and the request's sequence number. In a failed CQE only the `wr_id` and
/// the status can be trusted (ibv_poll_cq(3)).
class wr_id {
 public:
  explicit constexpr wr_id(std::uint64_t value) noexcept : value_{value} {}
  static constexpr std::uint64_t receive_bit = std::uint64_t{1} << 32;

  /// Returns the upper 31 bits: the index and its generation.
  static constexpr std::uint32_t first_key(std::uint16_t queue_pair) noexcept {
    return std::uint32_t{queue_pair} << 15;
  }
  static constexpr std::uint32_t next_key(std::uint32_t key) noexcept {
    return (key & ~0x7fffu) | ((key + 1) & 0x7fffu);
  }
  static constexpr std::uint64_t base(std::uint32_t key) noexcept {
    return std::uint64_t{key} << 33;
  }

  /// Index of a shared receive, whose CQE names the queue pair elsewhere. No driver has that many
  /// queue pairs.
  static constexpr std::uint16_t shared = 0xffff;
  static constexpr std::uint64_t of_shared(std::uint32_t number) noexcept {
    return std::uint64_t{shared} << 48 | receive_bit | number;
  }

  [[nodiscard]] constexpr std::uint16_t queue_pair() const noexcept {
    return std::uint16_t(value_ >> 48);
  }
  [[nodiscard]] constexpr std::uint32_t key() const noexcept { return std::uint32_t(value_ >> 33); }
  [[nodiscard]] constexpr bool is_receive() const noexcept { return (value_ & receive_bit) != 0; }
  [[nodiscard]] constexpr std::uint32_t sequence() const noexcept { return std::uint32_t(value_); }

 private:
  std::uint64_t value_;
};

}  // namespace cordma
