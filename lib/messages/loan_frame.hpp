#pragma once

#include "base/little_endian.hpp"

#include "agent/inline_grant.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace cordma::loan_protocol {

/// The terms of a loan in a message: docs/rpc-protocol.md has the bytes. Pure functions.

inline constexpr std::size_t terms_bytes = 24;

inline void encode(const loan_terms& t, std::byte* out) noexcept {
  little_endian::put(out, t.address);
  little_endian::put(out + 8, t.length);
  little_endian::put(out + 16, std::uint64_t(t.isolation) << 32 | t.rkey);
}

/// Reads `terms_bytes`, which may be invalid.
inline loan_terms decode(const std::byte* in) noexcept {
  const auto last = little_endian::get<std::uint64_t>(in + 16);
  return {.address = little_endian::get<std::uint64_t>(in),
          .length = little_endian::get<std::uint64_t>(in + 8),
          .rkey = std::uint32_t(last),
          .isolation = isolation(std::uint8_t(last >> 32))};
}

/// A field whose value no loan can have.
struct wrong_field {
  const char* name;
  std::uint64_t value;
};
inline std::optional<wrong_field> check(const std::byte* in) noexcept {
  const loan_terms t = decode(in);
  if (t.length == 0 || t.length - 1 > UINT64_MAX - t.address)
    return wrong_field{"the length of a loan", t.length};
  const std::uint32_t level = little_endian::get<std::uint32_t>(in + 20);
  if (level < std::uint32_t(isolation::shared_key) || level > std::uint32_t(isolation::exact))
    return wrong_field{"the isolation of a loan", level};
  return {};
}

}  // namespace cordma::loan_protocol
