// Decodes what a rank says to another. Bytes that are no frame give an error, and nothing else. A
// decoded frame gives the same bytes again.
#include "../../lib/group/group_frame.hpp"
#include "script.hpp"

#include <cordma/base/error.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace cordma::fuzz {
namespace {

namespace protocol = group_protocol;
using bytes = std::span<const std::byte>;

/// On a heap block of that size, whose ends the sanitizer watches. None: it is no frame.
std::optional<protocol::frame> decoded(bytes in) {
  const std::unique_ptr<std::byte[]> copy{new std::byte[in.size()]};
  std::ranges::copy(in, copy.get());
  try {
    return protocol::decode(bytes{copy.get(), in.size()});
  } catch (const error& e) {
    must(e.failure().code == errc::bad_frame, "what is no frame is a bad one");
    return {};
  }
}

void try_bytes(bytes in) {
  const std::optional<protocol::frame> f = decoded(in);
  if (!f) return;
  const std::size_t size = protocol::size_of(f->kind);
  must(in.size() >= size, "a frame has its kind's length");
  must(f->kind != protocol::kind::eager || in.size() - size == f->length, "and its message's");
  must(f->kind != protocol::kind::offer || f->loan.length == f->length, "an offer is of its loan");
  std::vector<std::byte> again(size);
  protocol::encode(*f, again.data());
  const std::optional<protocol::frame> same =
      decoded(f->kind == protocol::kind::eager ? bytes{in} : bytes{again});
  must(same && same->kind == f->kind && same->call == f->call && same->group == f->group &&
           same->operation == f->operation && same->step == f->step &&
           same->credits == f->credits && same->length == f->length,
       "a frame is what was said");
}

/// A frame of a kind that there is, with any fields, and a few bytes changed or none.
void try_frame(script& in) {
  const protocol::frame f{.kind = protocol::kind{std::uint8_t(1 + in.byte() % 14)},
                          .call = {.kind = detail::collective_kind{std::uint8_t(in.byte() % 10)},
                                   .root = in.byte(),
                                   .bytes = in.byte()},
                          .group = in.byte(),
                          .operation = in.byte(),
                          .step = in.byte(),
                          .credits = in.byte(),
                          .length = in.byte(),
                          .loan = {.address = in.byte(), .length = in.byte(), .rkey = in.byte()}};
  const std::size_t payload = f.kind == protocol::kind::eager ? f.length : 0;
  std::vector<std::byte> all(protocol::size_of(f.kind) + payload);
  protocol::encode(f, all.data());
  for (unsigned n = in.byte() % 4; n > 0; --n) all[in.byte() % all.size()] = std::byte{in.byte()};
  try_bytes(all);
}

}  // namespace
}  // namespace cordma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace cordma::fuzz;
  script in{bytes, size};
  if (in.byte() % 2 == 0)
    try_bytes(std::as_bytes(std::span{bytes, size}).subspan(size == 0 ? 0 : 1));
  else
    try_frame(in);
  return 0;
}
