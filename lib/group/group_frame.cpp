#include "group_frame.hpp"

#include "base/little_endian.hpp"
#include "messages/message_frame.hpp"

namespace cordma::group_protocol {
namespace {

// Where the fields are.
namespace at {
constexpr std::size_t kind = 0, collective = 1, reduction = 2, root = 4, group = 8, operation = 16;
constexpr std::size_t step = 24, credits = 28, bytes = 32, length = 40, loan = 48;
}  // namespace at

constexpr const char* call = "group";

using little_endian::get;
using little_endian::put;

}  // namespace

void encode(const frame& f, std::byte* out) noexcept {
  out[at::kind] = std::byte(f.kind);
  out[at::collective] = std::byte(f.call.kind);
  put(out + at::reduction, f.call.reduction);
  put(out + at::root, f.call.root);
  put(out + at::group, f.group);
  put(out + at::operation, f.operation);
  put(out + at::step, f.step);
  put(out + at::credits, f.credits);
  put(out + at::bytes, f.call.bytes);
  put(out + at::length, f.length);
  if (f.kind == kind::offer) message_protocol::encode_loan(f.loan, out + at::loan);
}

frame decode(std::span<const std::byte> in) {
  using message_protocol::throw_bad_value;
  if (in.size() < header_bytes)
    throw_bad_value("a frame is shorter than its header:", in.size(), call);
  const auto number = std::uint8_t(in[at::kind]);
  if (number < unsigned(kind::eager) || number > unsigned(kind::decision))
    throw_bad_value("kind", number, call);
  const auto collective = std::uint8_t(in[at::collective]);
  if (collective >= detail::collective_kinds) throw_bad_value("operation", collective, call);
  const std::byte* const from = in.data();
  frame f{.kind = kind{number},
          .call = {.kind = detail::collective_kind{collective},
                   .reduction = get<std::uint16_t>(from + at::reduction),
                   .root = get<std::uint32_t>(from + at::root),
                   .bytes = get<std::uint64_t>(from + at::bytes)},
          .group = get<std::uint64_t>(from + at::group),
          .operation = get<std::uint64_t>(from + at::operation),
          .step = get<std::uint32_t>(from + at::step),
          .credits = get<std::uint32_t>(from + at::credits),
          .length = get<std::uint64_t>(from + at::length)};
  if (in.size() < size_of(f.kind))
    throw_bad_value("a frame is shorter than its kind says:", in.size(), call);
  if (f.kind == kind::eager && in.size() - header_bytes != f.length)
    throw_bad_value("the bytes of a message are not", f.length, call);
  if (f.kind == kind::offer) {
    message_protocol::check_loan(from + at::loan, call);
    f.loan = message_protocol::decode_loan(from + at::loan);
    if (f.loan.length != f.length) throw_bad_value("an offer's loan is not of", f.length, call);
  }
  return f;
}

}  // namespace cordma::group_protocol
