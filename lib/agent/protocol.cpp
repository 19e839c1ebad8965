#include "protocol.hpp"

#include <cordma/base/error.hpp>
#include "base/little_endian.hpp"

#include <algorithm>
#include <cinttypes>
#include <concepts>
#include <cstdio>

namespace cordma::agent_protocol {
namespace {

constexpr std::uint16_t magic = 0xc0ad;

// Where the fields are.
namespace at {
constexpr std::size_t magic = 0, version = 2, kind = 3, taken = 4, tag = 8, lease = 16, length = 24;
constexpr std::size_t address = 32, duration = 40, rkey = 48, access = 52, status = 56;
constexpr std::size_t isolation = 60, alignment = 61, reserved = 62;
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
};
/// Durations beyond this are nobody's, and could overflow a clock.
constexpr std::uint64_t duration_us_max = 24ull * 3600 * 1'000'000;
constexpr std::uint8_t alignment_log2_max = 21;

using bytes = std::span<const std::byte>;

template <std::unsigned_integral T>
void put(std::span<std::byte, frame_bytes> out, std::size_t offset, T value) noexcept {
  little_endian::put(out.data() + offset, value);
}
template <std::unsigned_integral T>
T get(bytes in, std::size_t offset) noexcept {
  return little_endian::get<T>(in.data() + offset);
}

[[noreturn]] void fail(const char* what, std::uint64_t value) {
  char text[120];
  std::snprintf(text, sizeof text, "%s 0x%" PRIx64, what, value);
  throw error{{.code = errc::bad_frame, .call = "agent", .detail = text}};
}

/// Reads the fields. Those that the kind does not have must be 0.
class reader {
 public:
  reader(bytes in, kind k) noexcept : in_{in}, fields_{fields_of[unsigned(k)]} {}

  template <std::unsigned_integral T>
  T read(field which, std::size_t offset, const char* name, std::uint64_t low,
         std::uint64_t high) const {
    const T value = get<T>(in_, offset);
    const bool has = (fields_ & which) != 0;
    if (has ? value < low || value > high : value != 0) fail(name, value);
    return value;
  }

 private:
  bytes in_;
  unsigned fields_;
};

}  // namespace

void encode(const frame& f, std::span<std::byte, frame_bytes> out) noexcept {
  put(out, at::magic, magic);
  put(out, at::version, version);
  put(out, at::kind, std::uint8_t(f.kind));
  put(out, at::taken, f.taken);
  put(out, at::tag, f.tag);
  put(out, at::lease, f.lease);
  put(out, at::length, f.length);
  put(out, at::address, f.address);
  put(out, at::duration, std::uint64_t(f.duration.count()));
  put(out, at::rkey, f.rkey);
  put(out, at::access, std::uint32_t(f.access));
  put(out, at::status, f.status);
  put(out, at::isolation, f.isolation);
  put(out, at::alignment, f.alignment_log2);
  put(out, at::reserved, std::uint16_t{0});
}

frame_bytes_t encode(const frame& f) noexcept {
  frame_bytes_t out;
  encode(f, out);
  return out;
}

frame decode(bytes in) {
  constexpr std::uint64_t any = UINT64_MAX;
  if (in.size() != frame_bytes) fail("a frame's size is not 64 bytes but", in.size());
  if (const auto value = get<std::uint16_t>(in, at::magic); value != magic) fail("magic", value);
  if (const auto value = get<std::uint8_t>(in, at::version); value != version)
    fail("version", value);
  const auto number = get<std::uint8_t>(in, at::kind);
  if (number < unsigned(kind::credit) || number > unsigned(kind::note)) fail("kind", number);
  if (const auto value = get<std::uint16_t>(in, at::reserved); value != 0) fail("reserved", value);

  const reader r{in, kind{number}};
  frame f{.kind = kind{number}, .taken = get<std::uint32_t>(in, at::taken)};
  const bool is_note = f.kind == kind::note;
  const auto word = [&](field which, std::size_t offset, const char* name, bool may_be_0) {
    return r.read<std::uint64_t>(which, offset, name, may_be_0 || is_note ? 0 : 1, any);
  };
  f.tag = word(tag, at::tag, "tag", f.kind == kind::revoke);
  f.lease = word(lease, at::lease, "lease", false);
  f.length = word(length, at::length, "length", f.kind == kind::refused);
  f.address = r.read<std::uint64_t>(address, at::address, "address", 0, any - f.length);
  f.duration = std::chrono::microseconds{
      r.read<std::uint64_t>(duration, at::duration, "duration", 1, duration_us_max)};
  f.rkey = r.read<std::uint32_t>(rkey, at::rkey, "rkey", 0, any);
  const auto bits =
      r.read<std::uint32_t>(access, at::access, "access", 1, std::uint64_t(lendable_access));
  f.access = verbs::access(bits);
  if (!verbs::allows(lendable_access, f.access)) fail("access", bits);
  f.status =
      r.read<std::uint32_t>(status, at::status, "status", f.kind == kind::give_back ? 0 : 1, any);
  f.isolation =
      r.read<std::uint8_t>(isolated, at::isolation, "isolation",
                           std::uint64_t(isolation::shared_key), std::uint64_t(isolation::exact));
  f.alignment_log2 =
      r.read<std::uint8_t>(alignment, at::alignment, "alignment", 0, alignment_log2_max);
  return f;
}

}  // namespace cordma::agent_protocol
