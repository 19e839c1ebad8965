#include <cordma/detail/transfer/request_pack.hpp>

#include <catch2/catch.hpp>

using namespace cordma;

TEST_CASE("of requests that are posted together only the last has an entry, and each its value",
          "[transfer]") {
  using pack = request_pack<write_request<2>, atomic_request, invalidate_request>;
  STATIC_REQUIRE(
      std::is_same_v<pack::value_type, std::tuple<std::size_t, std::uint64_t, std::uint32_t>>);
  STATIC_REQUIRE(pack::sges_max == 2);
  STATIC_REQUIRE_FALSE(pack::has_one_slice);

  const remote_mr_slice remote{4096, 64, 7};
  const auto bytes = write(gather(const_local_mr_slice{}, const_local_mr_slice{}), remote);
  const auto word = fetch_add(remote.first(8), 1);
  const auto key = invalidate(9, {.signaled = false});
  const pack::shapes shapes = pack::shapes_of(pack::refer(bytes, word, key));
  CHECK_FALSE(shapes[0].is_signaled());
  CHECK_FALSE(shapes[1].is_signaled());
  CHECK(shapes[2].is_signaled());
  CHECK(shapes[0].local.size() == 2);
  CHECK(shapes[1].remote == &word.remote);
  const pack::words words{pack::value_to_be(bytes), 17, pack::value_to_be(key)};
  CHECK(pack::values(words) == std::tuple{0u, 17u, 9u});
}

TEST_CASE("what asks for no entry has none when it is posted alone", "[transfer]") {
  using pack = request_pack<atomic_request>;
  STATIC_REQUIRE(std::is_same_v<pack::value_type, std::uint64_t>);
  STATIC_REQUIRE(pack::has_one_slice);
  STATIC_REQUIRE_FALSE(request_pack<write_request<0>>::has_one_slice);
  const auto word = fetch_add({4096, 8, 7}, 1, {.signaled = false});
  CHECK_FALSE(pack::shape(word, 0).is_signaled());
}
