// Decodes what a peer says on the data queue pair. Inputs are any bytes, frames with their fields
// at the limits, and frames with a few bytes changed. Bytes that are no frame give an error, and
// nothing else. A decoded frame gives the same bytes again.
#include "../../lib/messages/message_frame.hpp"
#include "../../lib/rpc/call_frame.hpp"
#include "../support/encoded_call.hpp"
#include "script.hpp"

#include <cordma/base/error.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace cordma::fuzz {
namespace {

using bytes = std::span<const std::byte>;

/// On a heap block of that size, whose ends the sanitizer watches. None: it is no frame.
template <class Decode>
auto decoded(bytes in, Decode decode) -> std::optional<decltype(decode(in))> {
  const std::unique_ptr<std::byte[]> copy{new std::byte[in.size()]};
  std::ranges::copy(in, copy.get());
  try {
    return decode(bytes{copy.get(), in.size()});
  } catch (const error& e) {
    must(e.failure().code == errc::bad_frame, "what is no frame is a bad one");
    return {};
  }
}

bool is_message_frame(bytes in) {
  namespace protocol = message_protocol;
  using protocol::kind;
  const auto f = decoded(in, protocol::decode);
  must(decoded(in, protocol::is_data) == (f && f->kind == kind::data), "data is seen at a look");
  if (!f) return false;
  must(protocol::taken_in(in) == f->taken, "so are its credits");
  const std::size_t size = protocol::size_of(f->kind);
  const bool is_followed = f->kind == kind::data || f->kind == kind::control;
  must(is_followed ? in.size() >= size : in.size() == size, "a frame has its kind's length");
  const auto again = protocol::encode(*f);
  must(std::ranges::equal(bytes{again}.first(size), in.first(size)), "a frame is what was said");
  return true;
}

bool is_call_frame(bytes in, bool is_control) {
  namespace protocol = call_protocol;
  const auto h = decoded(in, [&](bytes b) { return protocol::decode(b, is_control); });
  if (!h) return false;
  must(std::ranges::equal(protocol::encode(*h), in.first(protocol::header_bytes)),
       "a header is what was said");
  must(h->call == protocol::call_in(in) && h->call < protocol::call_limit, "so is its number");
  if (h->version != protocol::version) return true;
  using protocol::kind;
  must(is_control == (h->kind == kind::cancel || h->kind == kind::returned),
       "control is not a message");
  std::size_t at = protocol::header_bytes;
  if ((h->bulk & protocol::trace) != 0) {
    std::array<std::byte, protocol::trace_bytes> again;
    const rpc::trace_context context = protocol::context_of(in);
    protocol::encode(context, again.data());
    must(!context.is_none(), "a context names a span");
    must(std::ranges::equal(again, in.subspan(at, again.size())), "a context is what was said");
    at += again.size();
  }
  for (const protocol::bulk one : {protocol::source, protocol::sink}) {
    if ((h->bulk & one) == 0) continue;
    std::array<std::byte, message_protocol::loan_bytes> again;
    message_protocol::encode_loan(protocol::terms_of(in, one), again.data());
    must(std::ranges::equal(again, in.subspan(at, again.size())), "what is lent is what was said");
    at += again.size();
  }
  must(at == protocol::head_bytes(h->bulk), "the request follows");
  return true;
}

bool can_be_lent(const loan_terms& t) {
  return t.length != 0 && t.length - 1 <= ~std::uint64_t{0} - t.address &&
         t.isolation >= isolation::shared_key && t.isolation <= isolation::exact;
}

constexpr std::size_t size_max = 128;
constexpr std::array<std::uint64_t, 16> edges{0,
                                              1,
                                              2,
                                              3,
                                              4,
                                              0x7f,
                                              0xff,
                                              0x100,
                                              0xffff,
                                              0xffff'ffff,
                                              0x1'0000'0000,
                                              call_protocol::call_limit - 1,
                                              call_protocol::call_limit,
                                              std::uint64_t{1} << 63,
                                              ~std::uint64_t{0} - 1,
                                              ~std::uint64_t{0}};

/// Bytes that were made of something, and then changed.
struct made {
  void add(bytes b) {
    std::ranges::copy(b, all.begin() + std::ptrdiff_t(size));
    size += b.size();
  }
  /// Changes some bytes, or none; true: none.
  bool change(script& in) {
    const std::uint8_t how = in.byte();
    if (how % 4 == 0) return true;
    if (how % 4 == 1) all[in.byte() % size] ^= std::byte{in.byte()};
    if (how % 4 == 2) size = in.byte() % (size_max + 1);
    if (how % 4 == 3)
      for (unsigned n = how / 4 % 4 + 1; n > 0; --n)
        all[in.byte() % size_max] = std::byte{in.byte()};
    return false;
  }
  [[nodiscard]] bytes get() const { return bytes{all}.first(size); }

  std::array<std::byte, size_max> all{};
  std::size_t size = 0;
};

loan_terms some_terms(script& in) {
  return {.address = in.of(edges),
          .length = in.of(edges),
          .rkey = std::uint32_t(in.of(edges)),
          .isolation = isolation(in.byte() % 5)};
}

/// Mostly one that names a span.
rpc::trace_context some_context(script& in) {
  const std::uint8_t how = in.byte();
  rpc::trace_context c{.flags = how};
  if (how % 8 != 1) c.trace_id.back() = std::byte{1};
  if (how % 8 != 2) c.span_id.front() = std::byte{1};
  return c;
}

void try_message_frame(script& in) {
  namespace protocol = message_protocol;
  using protocol::kind;
  const protocol::frame f{.kind = kind{std::uint8_t(in.byte() % 12)},
                          .taken = std::uint32_t(in.of(edges)),
                          .tag = in.of(edges),
                          .loan = some_terms(in),
                          .status = std::uint32_t(in.of(edges)),
                          .messages = std::uint32_t(in.of(edges))};
  made m;
  m.add(bytes{protocol::encode(f)}.first(protocol::size_of(f.kind)));
  const bool is_whole = m.change(in);
  const bool is_frame = is_message_frame(m.get());
  if (!is_whole) return;
  const bool has_kind = f.kind >= kind::data && f.kind <= kind::shrunk;
  const bool has_tag = protocol::size_of(f.kind) > 8 && f.kind < kind::control;
  const bool can_lend = f.kind != kind::announce || can_be_lent(f.loan);
  must(is_frame == (has_kind && (!has_tag || f.tag != 0) && can_lend),
       "what can be said is taken, and nothing else");
}

void try_call_frame(script& in, bool is_control) {
  namespace protocol = call_protocol;
  using protocol::kind;
  const std::uint8_t how = in.byte();
  const protocol::header h{.version = std::uint8_t(how % 16 == 0 ? how / 16 : protocol::version),
                           .kind = kind{std::uint8_t(in.byte() % 8)},
                           .bulk = std::uint16_t(how % 16 < 4 ? in.of(edges) : how / 4 % 8),
                           .value = std::uint32_t(in.of(edges)),
                           .call = in.of(edges),
                           .method = in.of(edges)};
  made m;
  m.add(protocol::encode(h));
  bool has_parts = h.bulk <= (protocol::loans | protocol::trace);
  if (has_parts && (h.bulk & protocol::trace) != 0) {
    const rpc::trace_context context = some_context(in);
    std::array<std::byte, protocol::trace_bytes> said;
    protocol::encode(context, said.data());
    m.add(said);
    has_parts = !context.is_none();
  }
  const std::size_t loans = h.bulk < 8 ? ((h.bulk & protocol::loans) + 1u) / 2 : 0;
  for (std::size_t n = 0; n < loans; ++n) {
    const loan_terms t = some_terms(in);
    std::array<std::byte, message_protocol::loan_bytes> said;
    message_protocol::encode_loan(t, said.data());
    m.add(said);
    has_parts = has_parts && can_be_lent(t);
  }
  const bool is_whole = m.change(in);
  const bool is_frame = is_call_frame(m.get(), is_control);
  if (!is_whole) return;
  const bool is_possible = [&] {
    switch (h.kind) {
      case kind::request: return !is_control && has_parts;
      case kind::reply: return !is_control && h.bulk == 0 && h.value == 0 && h.method == 0;
      case kind::failure: return !is_control && h.bulk == 0 && h.method == 0;
      case kind::cancel:
      case kind::returned: return is_control && h.bulk == 0 && h.value == 0 && h.method == 0;
    }
    return false;
  }();
  const bool has_size = !is_control || m.get().size() == protocol::header_bytes;
  must(is_frame == (h.call < protocol::call_limit && has_size &&
                    (h.version != protocol::version || is_possible)),
       "what can be said is taken, and nothing else");
}

void try_any(bytes in) {
  is_message_frame(in);
  is_call_frame(in, false);
  is_call_frame(in, true);
}

}  // namespace
}  // namespace cordma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace cordma::fuzz;
  script in{bytes, size};
  switch (in.byte() % 4) {
    case 0: try_any(std::as_bytes(std::span{bytes, size}).subspan(size == 0 ? 0 : 1)); break;
    case 1: try_message_frame(in); break;
    case 2: try_call_frame(in, false); break;
    case 3: try_call_frame(in, true); break;
  }
  return 0;
}
