#include "../../lib/messages/message_frame.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace cordma::message_protocol {

namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> all;
  for (const int v : values) all.push_back(std::byte(v));
  return all;
}

std::vector<std::byte> encoded(const frame& f) {
  const auto all = encode(f);
  return {all.begin(), all.begin() + std::ptrdiff_t(size_of(f.kind))};
}

std::string refusal_of(const std::vector<std::byte>& bytes) {
  try {
    static_cast<void>(decode(bytes));
  } catch (const error& e) {
    CHECK(e.code() == errc::bad_frame);
    return std::string{e.failure().detail.view()};
  }
  return {};
}

}  // namespace

TEST_CASE("a frame is what docs/rpc-protocol.md says, byte by byte", "[messages]") {
  CHECK(encoded({.kind = kind::data, .taken = 0x01020304}) ==
        bytes_of({1, 0, 0, 0, 0x04, 0x03, 0x02, 0x01}));
  CHECK(encoded({.kind = kind::announce,
                 .taken = 1,
                 .tag = 0x0a0b,
                 .loan = {.address = 0x2000, .length = 0x10000, .rkey = 0x01020304}}) ==
        bytes_of({3, 0, 0, 0, 1, 0, 0, 0, 0x0b, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0,
                  0, 0, 0, 0, 0, 0, 1, 0, 0,    0,    0, 0, 4, 3, 2, 1, 3, 0,    0, 0}));
  CHECK(encoded({.kind = kind::taken, .tag = 7, .status = 23}) ==
        bytes_of({4, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 23, 0, 0, 0, 0, 0, 0, 0}));
  CHECK(encoded({.kind = kind::withdraw, .tag = 7}).size() == 16);
  CHECK(encoded({.kind = kind::grant, .taken = 2, .messages = 0x10203}) ==
        bytes_of({7, 0, 0, 0, 2, 0, 0, 0, 3, 2, 1, 0, 0, 0, 0, 0}));
}

TEST_CASE("each kind of frame comes back as it was", "[messages]") {
  for (const frame& f : {frame{.kind = kind::credit, .taken = 5},
                         frame{.kind = kind::announce,
                               .taken = 6,
                               .tag = ~std::uint64_t{0},
                               .loan = {.address = 1,
                                        .length = 1 << 30,
                                        .rkey = ~0u,
                                        .isolation = isolation::shared_key}},
                         frame{.kind = kind::taken, .taken = 8, .tag = 3, .status = 26},
                         frame{.kind = kind::withdraw, .taken = 9, .tag = 4},
                         frame{.kind = kind::grant, .taken = 10, .messages = 1 << 20},
                         frame{.kind = kind::shrink, .taken = 11, .messages = 8},
                         frame{.kind = kind::shrunk, .taken = 12, .messages = 8}}) {
    const frame back = decode(encoded(f));
    CHECK(back.kind == f.kind);
    CHECK(back.taken == f.taken);
    CHECK(back.tag == f.tag);
    CHECK(back.loan.address == f.loan.address);
    CHECK(back.loan.length == f.loan.length);
    CHECK(back.loan.rkey == f.loan.rkey);
    CHECK(back.loan.isolation == f.loan.isolation);
    CHECK(back.status == f.status);
    CHECK(back.messages == f.messages);
  }
}

TEST_CASE("data is told from all else by its header, and says what was taken", "[messages]") {
  std::vector<std::byte> data = encoded({.kind = kind::data, .taken = 0xfffffffe});
  CHECK(is_data(data));
  CHECK(taken_in(data) == 0xfffffffe);
  data.push_back(std::byte{200});
  CHECK(is_data(data));
  CHECK(decode(data).kind == kind::data);
  data[1] = std::byte{2};
  CHECK_FALSE(is_data(data));
  CHECK_FALSE(is_data(std::span{data}.first(7)));
  CHECK_FALSE(is_data(encoded({.kind = kind::credit})));
  CHECK_FALSE(is_data({}));
}

TEST_CASE("what is no frame is refused by what is wrong with it", "[messages]") {
  CHECK(refusal_of({}) == "a frame is shorter than its header: 0x0");
  CHECK(refusal_of(bytes_of({1, 0, 0, 0, 0, 0, 0})) == "a frame is shorter than its header: 0x7");
  CHECK(refusal_of(bytes_of({0, 0, 0, 0, 0, 0, 0, 0})) == "kind 0x0");
  CHECK(refusal_of(bytes_of({200, 0, 0, 0, 0, 0, 0, 0})) == "kind 0xc8");
  CHECK(refusal_of(bytes_of({1, 2, 0, 0, 0, 0, 0, 0})) == "reserved 0x2");
  CHECK(refusal_of(bytes_of({2, 0, 0, 0, 0, 0, 0, 0, 0})) ==
        "the size of a frame of that kind is not 0x9");
  CHECK(refusal_of(encoded({.kind = kind::withdraw})) == "tag 0x0");
  const auto refusal_of_loan = [](const loan_terms& loan) {
    return refusal_of(encoded({.kind = kind::announce, .tag = 1, .loan = loan}));
  };
  CHECK(refusal_of_loan({.length = 0}) == "the length of a loan 0x0");
  CHECK(refusal_of_loan({.address = ~std::uint64_t{0}, .length = 2}) == "the length of a loan 0x2");
  CHECK(refusal_of_loan({.length = 1, .isolation = isolation{0}}) == "the isolation of a loan 0x0");
  CHECK(refusal_of_loan({.length = 1, .isolation = isolation{4}}) == "the isolation of a loan 0x4");
  std::vector<std::byte> more = encoded({.kind = kind::taken, .tag = 1});
  more.back() = std::byte{1};
  CHECK(refusal_of(more) == "reserved 0x1000000");
}

}  // namespace cordma::message_protocol
