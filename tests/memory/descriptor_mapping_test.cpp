#include "memory/descriptor_mapping.hpp"

#include "support/mappings.hpp"

#include <cordma/base/unique_fd.hpp>

#include <sys/mman.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <cstdint>

using namespace cordma;

TEST_CASE("a descriptor's bytes are mapped from the offset on, as far into their page",
          "[memory]") {
  const unique_fd file{::memfd_create("cordma test", MFD_CLOEXEC)};
  REQUIRE(::ftruncate(file.get(), 3 * 4096) == 0);
  const char word[] = "here";
  REQUIRE(::pwrite(file.get(), word, sizeof word, 4096 + 5) == sizeof word);
  const descriptor_mapping there{file.get(), 4096 + 5, 8000, true};
  CHECK(there.is_mapped());
  CHECK(reinterpret_cast<std::uintptr_t>(there.address()) % 4096 == 5);
  CHECK(there.address()[1] == std::byte{'e'});
  there.address()[0] = std::byte{'H'};
  char first = 0;
  REQUIRE(::pread(file.get(), &first, 1, 4096 + 5) == 1);
  CHECK(first == 'H');
}

TEST_CASE("what cannot be mapped has addresses of its own, and nothing behind them", "[memory]") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const unique_fd reader{ends[0]}, writer{ends[1]};
  const descriptor_mapping one{reader.get(), 4096 + 5, 8000, true};
  const descriptor_mapping other{reader.get(), 0, 8000, true};
  CHECK_FALSE(one.is_mapped());
  CHECK(reinterpret_cast<std::uintptr_t>(one.address()) % 4096 == 5);
  CHECK_FALSE(test::is_resident(one.address()));
  const auto distance = one.address() - other.address();
  CHECK((distance >= 8000 || distance <= -8000));
}
