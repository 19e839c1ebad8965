#include "group/group_frame.hpp"

#include "support/outcome.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <vector>

using namespace cordma;
using namespace cordma::group_protocol;
using test::failure_of;

namespace {

std::vector<std::byte> encoded(const frame& f, std::size_t payload = 0) {
  std::vector<std::byte> out(size_of(f.kind) + payload);
  encode(f, out.data());
  return out;
}

frame some_offer() {
  return {
      .kind = kind::offer,
      .call = {.kind = detail::collective_kind::reduce, .reduction = 300, .root = 7, .bytes = 9},
      .group = 0x0102030405060708,
      .operation = 1ull << 40,
      .step = 5,
      .credits = 3,
      .length = 4096,
      .loan = {.address = 0x7000, .length = 4096, .rkey = 0x55}};
}

}  // namespace

TEST_CASE("a frame between ranks is read as it was written", "[group]") {
  const frame sent = some_offer();
  const frame got = decode(encoded(sent));
  CHECK(got.kind == sent.kind);
  CHECK(got.call == sent.call);
  CHECK(got.group == sent.group);
  CHECK(got.operation == sent.operation);
  CHECK(got.step == sent.step);
  CHECK(got.credits == sent.credits);
  CHECK(got.length == sent.length);
  CHECK(got.loan.address == sent.loan.address);
  CHECK(got.loan.rkey == sent.loan.rkey);
}

TEST_CASE("a frame between ranks that is none is refused, with its value", "[group]") {
  const auto text_of = [](std::vector<std::byte> bytes) {
    const failure f = failure_of([&] { static_cast<void>(decode(bytes)); });
    CHECK(f.code == errc::bad_frame);
    return f.to_string();
  };
  CHECK_THAT(text_of(std::vector<std::byte>(47)), Catch::Contains("0x2f"));
  std::vector<std::byte> bytes = encoded(some_offer());
  bytes[0] = std::byte{15};
  CHECK_THAT(text_of(bytes), Catch::Contains("kind 0xf"));
  bytes = encoded(some_offer());
  bytes[1] = std::byte{10};
  CHECK_THAT(text_of(bytes), Catch::Contains("operation 0xa"));
  bytes = encoded(some_offer());
  bytes.pop_back();
  CHECK_THAT(text_of(bytes), Catch::Contains("0x47"));
  frame other = some_offer();
  other.length = 4097;
  CHECK_THAT(text_of(encoded(other)), Catch::Contains("0x1001"));
  other = some_offer();
  other.loan.length = 0;
  CHECK_THAT(text_of(encoded(other)), Catch::Contains("loan"));
  const frame eager{.kind = kind::eager, .length = 10};
  CHECK_THAT(text_of(encoded(eager, 11)), Catch::Contains("0xa"));
}
