#include <cordma/rpc/method.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

using namespace cordma;
using rpc::method;
using rpc::detail::method_id;

namespace {

struct key {
  std::uint64_t number;
};
struct get : method<"store.get", key, std::string> {};
struct put : method<"store.put", std::string_view> {};
struct plain : method<"ping"> {};

struct nameless {
  using request = key;
  using reply = key;
};

}  // namespace

// The draft's own vectors: what the other side was built with counts on them.
static_assert(method_id("") == 0xcbf29ce484222325);
static_assert(method_id("a") == 0xaf63dc4c8601ec8c);
static_assert(method_id("foobar") == 0x85944171f73967e8);

static_assert(get::name == "store.get" && get::id == method_id("store.get"));
static_assert(std::is_same_v<get::request, key> && std::is_same_v<get::reply, std::string>);
static_assert(std::is_same_v<put::reply, rpc::nothing>);
static_assert(std::is_same_v<plain::request, rpc::nothing>);
static_assert(rpc::detail::any_method<get> && rpc::detail::any_method<plain> &&
              rpc::detail::any_method<method<"a">>);
static_assert(!rpc::detail::any_method<nameless> && !rpc::detail::any_method<int>);
// The name alone tells methods apart on the wire, and in the program.
static_assert(get::id != put::id && !std::is_same_v<method<"a">, method<"b">>);
static_assert(std::is_same_v<method<"a">, method<"a">>);

TEST_CASE("a method's id is the same in every build", "[rpc]") {
  CHECK(get::id == 0xdde12bb351b2841c);
  CHECK(plain::id == 0xbf30e00dc53307a9);
  // Bytes above 0x7f, whose sign differs between processors.
  CHECK(method_id("\xc3\xb6\xff") == 0x5f9c201c1db72249);
}

TEST_CASE("a method's name lives as long as the program", "[rpc]") {
  constexpr std::string_view name = method<"store.get">::name;
  CHECK(name.data() == method<"store.get">::name.data());
  CHECK(std::string{name} == "store.get");
}
