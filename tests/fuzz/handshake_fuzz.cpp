// Decodes what a peer says before it has a connection: frames of the handshake and the text of a
// prepared connection. Inputs are raw, or right ones with a few bytes changed. An input that is
// neither gives an error that names the peer as the cause, and nothing else. Any other input can be
// agreed on, or is refused. It gives the same bytes again where all of them have a meaning.
#include "../../lib/connection/connection_info.hpp"
#include "../support/some_hello.hpp"
#include "script.hpp"

#include <cordma/base/error.hpp>
#include <cordma/verbs/device.hpp>
#include "connection/handshake.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace cordma::fuzz {
namespace {

using bytes = std::span<const std::byte>;

/// On a heap block of that size, whose ends the sanitizer watches. None: it is refused.
template <class Decode>
auto decoded(bytes in, Decode decode) -> std::optional<decltype(decode(in))> {
  const std::unique_ptr<std::byte[]> copy{new std::byte[in.size()]};
  std::ranges::copy(in, copy.get());
  try {
    return decode(bytes{copy.get(), in.size()});
  } catch (const error& e) {
    const auto code = e.failure().code;
    must(code == errc::bad_handshake || code == errc::incompatible_peer, "the peer is the cause");
    return {};
  }
}

void agree(const handshake::hello& theirs) {
  const handshake::hello ours = test::some_hello(0x42);
  const auto made = decoded(
      {}, [&](bytes) { return handshake::negotiate(ours, theirs, 0, handshake::side::listener); });
  if (!made) return;
  must(made->rtr.dest_qpn < 1u << 24 && made->rtr.rq_psn < 1u << 24, "numbers have 24 bits");
  must(verbs::bytes_of(made->rtr.path_mtu) != 0, "an MTU is one");
}

void read_frame(bytes in) {
  const auto f = decoded(in, handshake::decode);
  if (!f) return;
  if (const auto* const hello = std::get_if<handshake::hello>(&*f)) {
    const auto again = handshake::encode(*hello);
    must(handshake::encode(std::get<handshake::hello>(handshake::decode(again))) == again,
         "a hello that was taken is one");
    agree(*hello);
  } else if (const auto* const verdict = std::get_if<handshake::verdict>(&*f)) {
    must(bool(verdict->to_failure().code), "a refusal is a failure");
  }
}

void read_text(bytes in) {
  const auto hello = decoded(in, [](bytes b) {
    return detail::read_info({reinterpret_cast<const char*>(b.data()), b.size()});
  });
  if (hello) agree(*hello);
}

/// Changes a few bytes of a right one, as the input says.
template <class Bytes>
bytes changed(Bytes& right, bytes in) {
  const std::span all = std::as_writable_bytes(std::span{right});
  for (; in.size() >= 3; in = in.subspan(3)) {
    const std::size_t at = (std::size_t(in[0]) << 8 | std::size_t(in[1])) % all.size();
    all[at] = in[2];
  }
  return all;
}

}  // namespace
}  // namespace cordma::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cordma;
  const auto in = std::as_bytes(std::span{data, size});
  fuzz::read_frame(in);
  fuzz::read_text(in);
  auto hello = handshake::encode(test::some_hello(7));
  fuzz::read_frame(fuzz::changed(hello, in));
  auto start = handshake::encode(handshake::start{.mode = 1});
  fuzz::read_frame(fuzz::changed(start, in));
  std::string text = detail::info_text(test::some_hello(7));
  fuzz::read_text(fuzz::changed(text, in));
  return 0;
}
