#pragma once

#include <cordma/connection/connection.hpp>
#include <cordma/runtime/runtime.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace doctor {

inline constexpr std::size_t message_bytes = 1000;
inline constexpr std::size_t area_bytes = std::size_t{64} << 10;
inline constexpr std::size_t receives = 2;

/// Fills with bytes that differ from place to place, and with `seed`.
inline void fill(std::span<std::byte> bytes, unsigned seed) {
  unsigned value = seed;
  for (std::byte& one : bytes) one = std::byte((value = value * 1103515245u + 12345u) >> 16);
}

inline void check_filled(std::span<const std::byte> bytes, unsigned seed, const char* what) {
  std::vector<std::byte> wanted(bytes.size());
  fill(wanted, seed);
  if (std::ranges::equal(bytes, wanted)) return;
  throw std::runtime_error{std::string{what} + ": the bytes that arrived are not those that left"};
}

inline void check_equal(std::uint64_t got, std::uint64_t wanted, const char* what) {
  if (got == wanted) return;
  throw std::runtime_error{std::string{what} + ": got " + std::to_string(got) + " in place of " +
                           std::to_string(wanted)};
}

inline constexpr unsigned area_seed = 3;
inline constexpr unsigned message_seed = 7;

/// A device without atomics may refuse to register memory for them.
inline cordma::verbs::access area_access(cordma::runtime& rt) {
  using cordma::verbs::access;
  const access always = access::local_write | access::remote_read | access::remote_write;
  const bool has_atomics = rt.context().limits().atomic != IBV_ATOMIC_NONE;
  return has_atomics ? always | access::remote_atomic : always;
}

/// Memory of one side of an attempt.
struct buffers {
  explicit buffers(cordma::runtime& rt)
      : in{rt.memory().allocate_zeroed(receives * message_bytes)},
        out{rt.memory().allocate_zeroed(area_bytes)},
        area{rt.memory(area_access(rt)).allocate_zeroed(area_bytes)} {
    fill(area.bytes(), area_seed);
  }
  void post_receives(cordma::connection& conn) {
    for (std::size_t i = 0; i < receives; ++i)
      conn.post_recv(in.slice(i * message_bytes, message_bytes));
  }

  cordma::local_mr in;
  cordma::local_mr out;
  cordma::local_mr area;  ///< The peer's one-sided operations reach it.
};

}  // namespace doctor
