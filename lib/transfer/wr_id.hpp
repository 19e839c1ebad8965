#pragma once

#include <cstdint>

namespace cordma {

/// What a completion entry gives back to tell whose it is: the queue pair's place in its driver,
/// the generation of that place, which side, and the request's sequence number there. On a failed
/// entry nothing else but the status can be trusted (ibv_poll_cq(3)).
class wr_id {
 public:
  explicit constexpr wr_id(std::uint64_t value) noexcept : value_{value} {}
  static constexpr std::uint64_t receive_bit = std::uint64_t{1} << 32;

  static constexpr std::uint64_t base(std::uint16_t queue_pair, std::uint16_t generation) noexcept {
    return std::uint64_t{queue_pair} << 48 | std::uint64_t{generation} << 33;
  }
  static constexpr std::uint16_t next_generation(std::uint16_t generation) noexcept {
    return std::uint16_t((generation + 1) & 0x7fff);
  }

  /// In place of a queue pair's: a receive that several share, whose completion names the queue
  /// pair elsewhere. No driver has so many.
  static constexpr std::uint16_t shared = 0xffff;
  static constexpr std::uint64_t of_shared(std::uint32_t number) noexcept {
    return std::uint64_t{shared} << 48 | receive_bit | number;
  }

  [[nodiscard]] constexpr std::uint16_t queue_pair() const noexcept {
    return std::uint16_t(value_ >> 48);
  }
  [[nodiscard]] constexpr std::uint16_t generation() const noexcept {
    return std::uint16_t(value_ >> 33 & 0x7fff);
  }
  [[nodiscard]] constexpr bool is_receive() const noexcept { return (value_ & receive_bit) != 0; }
  [[nodiscard]] constexpr std::uint32_t sequence() const noexcept { return std::uint32_t(value_); }

 private:
  std::uint64_t value_;
};

}  // namespace cordma
