#include "protocol.hpp"

#include <cordma/base/error.hpp>
#include "base/little_endian.hpp"

#include <algorithm>
#include <cinttypes>
#include <concepts>
#include <cstdio>
#include <type_traits>

namespace cordma::agent_protocol {
namespace {

constexpr std::uint16_t magic = 0xc0ad;

// Where the fields are that every kind has.
namespace at {
constexpr std::size_t magic = 0, version = 2, kind = 3, taken = 4, reserved = 62;
}  // namespace at

/// Bits for the fields that a kind has, besides `taken`. All other fields are 0.
enum field : unsigned {
  tag = 1,
  lease = 2,
  length = 4,
  address = 8,
  rkey = 16,
  access = 32,
  duration = 64,
  status = 128,
  isolated = 256,
  alignment = 512,
};
constexpr unsigned terms = lease | length | address | rkey | access | duration | isolated;
constexpr unsigned fields_of[] = {
    0,                                             // no kind
    0,                                             // credit
    tag | length | access | duration | alignment,  // request
    tag | terms,                                   // granted
    tag | status | length,                         // refused
    terms,                                         // offer
    tag | lease,                                   // accept
    tag | lease | duration,                        // renew
    tag | duration,                                // renewed
    lease | status,                                // give_back
    tag | lease,                                   // hand_over
    tag,                                           // handed_over
    lease | tag,                                   // revoke
    tag | lease | length,                          // note
    tag | lease | length | address | status,       // bytes
    tag | lease | length | address,                // proof
};
/// Durations beyond this are nobody's, and could overflow a clock.
constexpr std::uint64_t duration_us_max = 24ull * 3600 * 1'000'000;
constexpr std::uint8_t alignment_log2_max = 21;

using bytes = std::span<const std::byte>;

template <std::unsigned_integral T>
T get(bytes in, std::size_t offset) noexcept {
  return little_endian::get<T>(in.data() + offset);
}

[[noreturn]] void fail(const char* what, std::uint64_t value) {
  char text[120];
  std::snprintf(text, sizeof text, "%s 0x%" PRIx64, what, value);
  throw error{{.code = errc::bad_frame, .call = "agent", .detail = text}};
}

constexpr std::unsigned_integral auto on_wire(std::unsigned_integral auto value) noexcept {
  return value;
}
constexpr std::uint32_t on_wire(verbs::access value) noexcept { return std::uint32_t(value); }
constexpr std::uint64_t on_wire(std::chrono::microseconds value) noexcept {
  return std::uint64_t(value.count());
}

/// Calls `with(bit, name, offset, member, low, high)` for each field that some kinds lack. The
/// range of a field depends only on fields before it.
void each_field(auto& f, auto with) {
  constexpr std::uint64_t any = UINT64_MAX;
  const bool is_payload = has_payload(f.kind);
  const std::uint64_t least = f.kind == kind::note || is_payload ? 0 : 1;
  with(tag, "tag", 8, f.tag, f.kind == kind::revoke ? 0 : least, any);
  with(lease, "lease", 16, f.lease, least, any);
  with(length, "length", 24, f.length, f.kind == kind::refused ? 0 : least, any);
  with(address, "address", 32, f.address, 0, is_payload ? any : any - f.length);
  with(duration, "duration", 40, f.duration, 1, duration_us_max);
  with(rkey, "rkey", 48, f.rkey, 0, any);
  with(access, "access", 52, f.access, 1, std::uint64_t(lending_policy::lendable_access));
  with(status, "status", 56, f.status, f.kind == kind::give_back ? 0 : 1,
       is_payload ? end_frame.status : any);
  with(isolated, "isolation", 60, f.isolation, std::uint64_t(isolation::shared_key),
       std::uint64_t(isolation::exact));
  with(alignment, "alignment", 61, f.alignment_log2, 0, alignment_log2_max);
}

}  // namespace

frame bytes_frame(std::span<const std::byte> content) noexcept {
  payload all{};
  std::ranges::copy(content, all.begin());
  frame f = proof_frame(all);
  f.kind = kind::bytes;
  f.status = std::uint32_t(content.size());
  return f;
}

frame proof_frame(const payload& proof) noexcept {
  const auto word = [&](std::size_t n) {
    return little_endian::get<std::uint64_t>(proof.data() + 8 * n);
  };
  return {
      .kind = kind::proof, .tag = word(0), .lease = word(1), .length = word(2), .address = word(3)};
}

payload payload_of(const frame& f) noexcept {
  payload all;
  const std::array words{f.tag, f.lease, f.length, f.address};
  for (std::size_t n = 0; n < words.size(); ++n) little_endian::put(all.data() + 8 * n, words[n]);
  return all;
}

frame_bytes_t encode(const frame& f) noexcept {
  frame_bytes_t out;
  const auto put = [&](std::size_t offset, std::unsigned_integral auto value) {
    little_endian::put(out.data() + offset, value);
  };
  put(at::magic, magic);
  put(at::version, version);
  put(at::kind, std::uint8_t(f.kind));
  put(at::taken, f.taken);
  each_field(f, [&](unsigned, const char*, std::size_t offset, const auto& value, std::uint64_t,
                    std::uint64_t) { put(offset, on_wire(value)); });
  put(at::reserved, std::uint16_t{0});
  return out;
}

frame decode(bytes in) {
  if (in.size() != frame_bytes) fail("a frame's size is not 64 bytes but", in.size());
  if (const auto value = get<std::uint16_t>(in, at::magic); value != magic) fail("magic", value);
  if (const auto value = get<std::uint8_t>(in, at::version); value != version)
    fail("version", value);
  const auto number = get<std::uint8_t>(in, at::kind);
  if (number < unsigned(kind::credit) || number > unsigned(kind::proof)) fail("kind", number);
  if (const auto value = get<std::uint16_t>(in, at::reserved); value != 0) fail("reserved", value);

  frame f{.kind = kind{number}, .taken = get<std::uint32_t>(in, at::taken)};
  each_field(f, [&](unsigned bit, const char* name, std::size_t offset, auto& member,
                    std::uint64_t low, std::uint64_t high) {
    const auto value = get<decltype(on_wire(member))>(in, offset);
    const bool has = (fields_of[number] & bit) != 0;
    if (has ? value < low || value > high : value != 0) fail(name, value);
    member = std::remove_reference_t<decltype(member)>(value);
  });
  if (!verbs::allows(lending_policy::lendable_access, f.access)) fail("access", on_wire(f.access));
  return f;
}

}  // namespace cordma::agent_protocol
