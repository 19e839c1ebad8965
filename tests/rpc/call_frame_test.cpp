#include "../../lib/rpc/call_frame.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <initializer_list>
#include <string>
#include <vector>

namespace cordma::call_protocol {

namespace {

std::vector<std::byte> bytes_of(const header& h) {
  const auto all = encode(h);
  return {all.begin(), all.end()};
}

/// What is wrong with it; empty: nothing.
std::string refusal_of(std::span<const std::byte> bytes, bool is_control) {
  try {
    static_cast<void>(decode(bytes, is_control));
  } catch (const error& e) {
    CHECK(e.failure().code == errc::bad_frame);
    return std::string{e.failure().detail.view()};
  }
  return "";
}
std::string refusal_of(const header& h, bool is_control = false) {
  return refusal_of(bytes_of(h), is_control);
}

}  // namespace

TEST_CASE("a call's header is these bytes", "[rpc]") {
  const header h{.kind = kind::request,
                 .bulk = source | sink,
                 .value = 0x04030201,
                 .call = 0x0807060504030201,
                 .method = 0x1817161514131211};
  const auto bytes = encode(h);
  std::vector<unsigned> numbers;
  for (const std::byte b : bytes) numbers.push_back(unsigned(b));
  CHECK(numbers == std::vector<unsigned>{1,    1,    3,    0,    1,    2,    3,    4,
                                         1,    2,    3,    4,    5,    6,    7,    8,
                                         0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18});
}

TEST_CASE("each header that may be is read as it was written", "[rpc]") {
  for (const header& h : {header{.kind = kind::request, .call = 1, .method = 2},
                          header{.kind = kind::request, .bulk = sink, .value = no_deadline},
                          header{.kind = kind::reply, .call = call_limit - 1},
                          header{.kind = kind::failure, .value = 99, .call = 3}}) {
    CHECK(bytes_of(decode(bytes_of(h), false)) == bytes_of(h));
  }
  for (const header& h : {header{.kind = kind::cancel, .call = 1},
                          header{.kind = kind::want, .bulk = source, .call = 1}}) {
    CHECK(bytes_of(decode(bytes_of(h), true)) == bytes_of(h));
  }
}

TEST_CASE("a header that its kind cannot have is refused by the field", "[rpc]") {
  const auto request = bytes_of(header{});
  CHECK(refusal_of(std::span{request}.first(23), false) ==
        "the size of a call's header is not 0x17");
  auto longer = bytes_of({.kind = kind::cancel});
  longer.push_back({});
  CHECK(refusal_of(longer, true) == "the size of a call's header is not 0x19");
  CHECK(refusal_of({.kind = kind{0}}) == "kind 0x0");
  CHECK(refusal_of({.kind = kind::cancel}) == "kind 0x4");
  CHECK(refusal_of({.kind = kind::request}, true) == "kind 0x1");
  CHECK(refusal_of({.kind = kind{6}}, true) == "kind 0x6");
  CHECK(refusal_of({.call = call_limit}) == "call 0x4000000000000000");
  CHECK(refusal_of({.bulk = 4}) == "bulk 0x4");
  CHECK(refusal_of({.kind = kind::reply, .bulk = source}) == "bulk 0x1");
  CHECK(refusal_of({.kind = kind::want}, true) == "bulk 0x0");
  CHECK(refusal_of({.kind = kind::want, .bulk = 3}, true) == "bulk 0x3");
  CHECK(refusal_of({.kind = kind::reply, .value = 1}) == "value 0x1");
  CHECK(refusal_of({.kind = kind::cancel, .value = 1}, true) == "value 0x1");
  CHECK(refusal_of({.kind = kind::reply, .method = 1}) == "method 0x1");
  CHECK(refusal_of({.kind = kind::want, .bulk = sink, .method = 1}, true) == "method 0x1");
}

TEST_CASE("of another version only the call's number is looked at", "[rpc]") {
  const header h{.version = 2, .kind = kind{77}, .bulk = 77, .call = 5, .method = 6};
  CHECK(refusal_of(h).empty());
  CHECK(decode(bytes_of(h), false).version == 2);
  CHECK(decode(bytes_of(h), true).call == 5);
  CHECK(call_in(bytes_of(h)) == 5);
  CHECK(refusal_of({.version = 2, .call = call_limit}) == "call 0x4000000000000000");
}

TEST_CASE("no two calls lend for the same purpose, nor for a message's", "[rpc]") {
  CHECK(purpose_of(0, source) == 0x8000000000000000);
  CHECK(purpose_of(0, sink) == 0x8000000000000001);
  CHECK(purpose_of(1, source) == 0x8000000000000002);
  CHECK(purpose_of(call_limit - 1, sink) == 0xffffffffffffffff);
}

}  // namespace cordma::call_protocol
