#include <cordma/rpc/codec.hpp>

#include "support/aborts.hpp"
#include "support/outcome.hpp"
#include "support/text.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <order.pb.h>

#include <array>
#include <climits>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using namespace cordma;
using rpc::codec;
using rpc::encodable;
using rpc::is_plain;
using test::bytes_of;
using test::failure_of;

namespace {

enum class colour : std::uint8_t { red, green };
struct corner {
  float x, y, z;
  friend bool operator==(const corner&, const corner&) = default;
};
struct record {
  char name[8];
  std::array<std::uint32_t, 2> sizes;
  corner at;
  colour paint[4];
};
struct padded {
  std::uint8_t tag;
  std::uint32_t value;
};
struct padded_at_end {
  double value;
  float weight;
};
struct with_pointer {
  const char* text;
  std::uint64_t size;
};
struct with_bool {
  bool is_set;
};
struct marker {};

// A type without padding, as only its author can tell.
union word {
  std::uint32_t whole;
  std::array<std::uint8_t, 4> parts;
};

// A type with a codec of its own: what is left of its size is an array of numbers.
struct series {
  std::vector<std::uint16_t> values;
};

// Speaks as protobuf does, of sizes that tests don't have the memory for.
struct speaks_as_protobuf {
  std::size_t length = 0;
  std::size_t ByteSizeLong() const { return length; }
  bool SerializeToArray(void*, int) const { return false; }
  bool ParseFromArray(const void*, int) { return true; }
};

}  // namespace

template <>
inline constexpr bool cordma::rpc::is_plain<word> = true;

template <>
struct cordma::rpc::codec<series> {
  static std::size_t size(const series& s) { return 2 * s.values.size(); }
  static void encode(const series& s, std::span<std::byte> out) {
    std::memcpy(out.data(), s.values.data(), out.size());
  }
  static series decode(std::span<const std::byte> in) {
    if (in.size() % 2 != 0) {
      throw error{{.code = errc::bad_message, .call = "series", .detail = "half a number"}};
    }
    series s{std::vector<std::uint16_t>(in.size() / 2)};
    std::memcpy(s.values.data(), in.data(), in.size());
    return s;
  }
};

static_assert(encodable<std::int8_t> && encodable<std::uint64_t> && encodable<float> &&
              encodable<double> && encodable<colour> && encodable<char> && encodable<bool>);
static_assert(encodable<corner> && encodable<record> && encodable<std::array<corner, 3>>);
static_assert(encodable<rpc::nothing> && encodable<marker> && encodable<word>);
static_assert(encodable<std::span<const std::byte>> && encodable<std::vector<std::byte>> &&
              encodable<std::string> && encodable<std::string_view>);
static_assert(encodable<series> && encodable<wire::order> && encodable<speaks_as_protobuf>);

// Types that would show the peer more than it was meant to see.
static_assert(!encodable<padded> && !encodable<padded_at_end> && !encodable<long double>);
static_assert(!encodable<std::array<padded, 2>> && !encodable<std::optional<int>>);
static_assert(!encodable<int*> && !encodable<void (*)()> && !encodable<int corner::*> &&
              !encodable<std::nullptr_t> && !encodable<with_pointer>);
#ifdef __clang__  // g++ 12 sees no pointer in an array.
static_assert(!encodable<std::array<std::string_view, 2>> && !encodable<std::array<int*, 2>>);
#endif
// Types of which a peer could make values that no program can.
static_assert(!encodable<with_bool> && !encodable<std::array<bool, 2>>);
// Types that are no values, and types for which nobody has written a codec.
static_assert(!encodable<int&> && !encodable<const int> && !encodable<int[2]> && !encodable<void>);
static_assert(!encodable<std::span<std::byte>> && !encodable<std::span<const int>> &&
              !encodable<std::vector<int>> && !encodable<const std::string>);

namespace {

template <class T>
std::vector<std::byte> encoded(const T& value) {
  std::vector<std::byte> bytes(codec<T>::size(value), std::byte{0xee});
  codec<T>::encode(value, bytes);
  return bytes;
}

template <class T>
T back_and_forth(const T& value) {
  return codec<T>::decode(encoded(value));
}

bool says(const failure& f, std::string_view what) {
  return f.detail.view().find(what) != std::string_view::npos;
}

}  // namespace

TEST_CASE("bytes and text are sent as they are", "[rpc]") {
  const auto bytes = bytes_of("some\0bytes");
  CHECK(encoded(bytes) == bytes);
  CHECK(encoded(std::span<const std::byte>{bytes}) == bytes);
  CHECK(encoded(std::string{"text"}) == bytes_of("text"));
  CHECK(encoded(std::string_view{"text"}) == bytes_of("text"));
  CHECK(codec<std::vector<std::byte>>::decode(bytes) == bytes);
  CHECK(codec<std::string>::decode(bytes_of("text")) == "text");
}

TEST_CASE("a view of bytes or text that came is one of the message", "[rpc]") {
  const auto message = bytes_of("text");
  const auto bytes = codec<std::span<const std::byte>>::decode(message);
  CHECK(bytes.data() == message.data());
  CHECK(bytes.size() == 4);
  const auto text = codec<std::string_view>::decode(message);
  CHECK(static_cast<const void*>(text.data()) == message.data());
  CHECK(text == "text");
}

TEST_CASE("no bytes and no text are sent, too", "[rpc]") {
  CHECK(encoded(std::string_view{}).empty());
  CHECK(encoded(std::vector<std::byte>{}).empty());
  CHECK(codec<std::string_view>::decode({}).empty());
  CHECK(codec<std::string>::decode({}).empty());
  CHECK(codec<std::span<const std::byte>>::decode({}).empty());
  CHECK(codec<std::vector<std::byte>>::decode({}).empty());
}

TEST_CASE("a plain type is sent as it lies in memory", "[rpc]") {
  const std::uint32_t number = 0x01020304;
  const auto bytes = encoded(number);
  REQUIRE(bytes.size() == sizeof number);
  CHECK(std::memcmp(bytes.data(), &number, sizeof number) == 0);
  CHECK(back_and_forth(number) == number);
  CHECK(back_and_forth(-0.5) == -0.5);
  CHECK(back_and_forth(colour::green) == colour::green);
  CHECK(back_and_forth(corner{1, 2, 3}) == corner{1, 2, 3});
  CHECK(back_and_forth(word{.whole = 7}).whole == 7);
  const record r = back_and_forth(
      record{"record", {1, UINT32_MAX}, {4, 5, 6}, {colour::green, {}, {}, colour::green}});
  CHECK(std::string{r.name} == "record");
  CHECK(r.sizes[1] == UINT32_MAX);
  CHECK(r.at == corner{4, 5, 6});
  CHECK(r.paint[3] == colour::green);
}

TEST_CASE("a plain type is read from wherever the message has it", "[rpc]") {
  alignas(8) std::array<std::byte, 13> message{};
  const corner sent{1, 2, 3};
  const std::span at_odd_address = std::span{message}.subspan(1);
  codec<corner>::encode(sent, at_odd_address);
  CHECK(codec<corner>::decode(at_odd_address) == sent);
}

TEST_CASE("nothing takes no bytes, and bytes are not nothing", "[rpc]") {
  CHECK(encoded(rpc::nothing{}).empty());
  CHECK(encoded(marker{}).empty());
  CHECK(codec<rpc::nothing>::decode({}) == rpc::nothing{});
  const auto f = failure_of([] { codec<rpc::nothing>::decode(bytes_of("a")); });
  CHECK(f.code == errc::bad_message);
  CHECK(says(f, "1 bytes, its type takes 0"));
}

TEST_CASE("a message of another length than its type's is refused, and both are named", "[rpc]") {
  for (const std::size_t length : {0u, 11u, 13u}) {
    const std::vector<std::byte> message(length);
    const auto f = failure_of([&] { codec<corner>::decode(message); });
    CHECK(f.code == errc::bad_message);
    CHECK(says(f, std::to_string(length) + " bytes, its type takes 12"));
  }
}

TEST_CASE("a bool that came is true or false", "[rpc]") {
  CHECK(back_and_forth(true));
  CHECK_FALSE(back_and_forth(false));
  for (const unsigned wrong : {2u, 0x80u, 0xffu}) {
    const std::array message{std::byte(wrong)};
    CHECK(failure_of([&] { codec<bool>::decode(message); }).code == errc::bad_message);
  }
  CHECK(failure_of([] { codec<bool>::decode({}); }).code == errc::bad_message);
  CHECK(failure_of([] { codec<bool>::decode(bytes_of("\1\1")); }).code == errc::bad_message);
}

TEST_CASE("a type with a codec of its own is sent by that", "[rpc]") {
  CHECK(encoded(series{{1, 2, 3}}).size() == 6);
  CHECK(back_and_forth(series{{1, 2, 3}}).values == std::vector<std::uint16_t>{1, 2, 3});
  CHECK(failure_of([] { codec<series>::decode(bytes_of("odd")); }).code == errc::bad_message);
}

TEST_CASE("to encode into more or fewer bytes than a value takes breaks a contract", "[rpc]") {
  for (const std::size_t length : {11u, 13u}) {
    const auto death = support::run_in_child([&] {
      std::vector<std::byte> out(length);
      codec<corner>::encode({}, out);
    });
    CHECK(death.aborted);
    CHECK(death.text.find("as many bytes as it takes") != std::string::npos);
  }
}

TEST_CASE("protobuf's messages are sent as protobuf does", "[rpc]") {
  wire::order order;
  order.set_customer("somebody");
  order.set_number(42);
  for (int i = 0; i < 100; ++i) order.add_prices(i);
  const auto bytes = encoded(order);
  CHECK(bytes.size() == order.ByteSizeLong());
  CHECK(std::memcmp(bytes.data(), order.SerializeAsString().data(), bytes.size()) == 0);
  const auto came = codec<wire::order>::decode(bytes);
  CHECK(came.customer() == "somebody");
  CHECK(came.number() == 42);
  REQUIRE(came.prices_size() == 100);
  CHECK(came.prices(99) == 99);
}

TEST_CASE("a protobuf message of default values takes no bytes", "[rpc]") {
  CHECK(encoded(wire::order{}).empty());
  CHECK(codec<wire::order>::decode({}).number() == 0);
}

TEST_CASE("what protobuf cannot parse is refused", "[rpc]") {
  wire::order order;
  order.set_customer("somebody");
  auto bytes = encoded(order);
  bytes.pop_back();
  const auto f = failure_of([&] { codec<wire::order>::decode(bytes); });
  CHECK(f.code == errc::bad_message);
  CHECK(says(f, "ParseFromArray failed, on 9 bytes"));
}

TEST_CASE("a protobuf message that won't be serialized is refused", "[rpc]") {
  std::array<std::byte, 7> out{};
  const auto f = failure_of([&] { codec<speaks_as_protobuf>::encode({7}, out); });
  CHECK(f.code == errc::bad_message);
  CHECK(says(f, "SerializeToArray failed, into 7 bytes"));
}

TEST_CASE("a protobuf message above INT_MAX bytes is refused on either side", "[rpc]") {
  const auto above = std::size_t{INT_MAX} + 1;
  CHECK(codec<speaks_as_protobuf>::size({INT_MAX}) == INT_MAX);
  const auto sent = failure_of([&] { codec<speaks_as_protobuf>::size({above}); });
  CHECK(sent.code == errc::limit_exceeded);
  CHECK(says(sent, "2147483648 bytes, protobuf takes 2147483647"));
  // The codec must not read these bytes.
  std::byte byte{};
  const auto f = failure_of([&] { codec<speaks_as_protobuf>::encode({above}, {&byte, above}); });
  CHECK(f.code == errc::limit_exceeded);
  const auto came = failure_of([&] { codec<speaks_as_protobuf>::decode({&byte, above}); });
  CHECK(came.code == errc::bad_message);
}
