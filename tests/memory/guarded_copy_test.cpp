#include "memory/guarded_copy.hpp"

#include "support/outcome.hpp"

#include <sys/mman.h>
#include <catch2/catch.hpp>

#include <array>
#include <cerrno>
#include <cstddef>

using namespace cordma;

TEST_CASE("bytes that are there are copied, and of memory that has gone an error says so",
          "[memory]") {
  constexpr std::size_t page = 4096;
  void* const at =
      ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(at != MAP_FAILED);
  auto* const bytes = static_cast<std::byte*>(at);
  bytes[page - 1] = std::byte{7};
  std::array<std::byte, 16> to{};
  guarded_copy(to.data(), {bytes + page - 16, 16});
  CHECK(to[15] == std::byte{7});
  REQUIRE(::munmap(bytes + page, page) == 0);
  for (const std::size_t from : {page - 8, page}) {  // Half of the bytes have gone, or all.
    const failure why = test::failure_of([&] { guarded_copy(to.data(), {bytes + from, 16}); });
    CHECK(why.code == std::errc::bad_address);
  }
  CHECK(::munmap(bytes, page) == 0);
}
