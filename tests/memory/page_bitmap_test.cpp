#include "../../lib/memory/page_bitmap.hpp"

#include <catch2/catch.hpp>

#include <random>
#include <vector>

using cordma::page_bitmap;

TEST_CASE("a bitmap gives the first run that is long enough and aligned", "[memory]") {
  page_bitmap pages{200};
  CHECK(pages.take(3, 1) == 0);
  CHECK(pages.take(1, 8) == 8);
  CHECK(pages.take(5, 1) == 3);
  CHECK(pages.take(100, 64) == 64);
  CHECK(pages.take(100, 1) == page_bitmap::none);
  CHECK(pages.free() == 200 - 3 - 1 - 5 - 100);
  CHECK(pages.take(55, 1) == 9);
  CHECK(pages.take(36, 1) == 164);
  CHECK(pages.free() == 0);
  CHECK(pages.take(1, 1) == page_bitmap::none);
  pages.give_back(60, 70);
  CHECK(pages.take(70, 1) == 60);
}

TEST_CASE("pages come back in other pieces than they went", "[memory]") {
  page_bitmap pages{130};
  REQUIRE(pages.take(130, 1) == 0);
  pages.give_back(63, 2);
  pages.give_back(0, 1);
  pages.give_back(129, 1);
  CHECK(pages.free() == 4);
  CHECK(pages.take(2, 1) == 63);
  CHECK(pages.take(1, 1) == 0);
  CHECK(pages.take(1, 1) == 129);
}

TEST_CASE("a bitmap agrees with a list of flags", "[memory]") {
  std::mt19937 random{7};
  for (const std::size_t size : {std::size_t{1}, std::size_t{64}, std::size_t{333}}) {
    page_bitmap pages{size};
    std::vector<bool> used(size);
    const auto first_fit = [&](std::size_t count, std::size_t alignment) {
      for (std::size_t first = 0; first + count <= size; first += alignment) {
        std::size_t run = 0;
        while (run < count && !used[first + run]) ++run;
        if (run == count) return first;
      }
      return page_bitmap::none;
    };
    for (int n = 0; n < 3000; ++n) {
      if (random() % 2 == 0) {
        const std::size_t count = 1 + random() % (size / 8 + 1);
        const std::size_t alignment = std::size_t{1} << random() % 5;
        const std::size_t expected = first_fit(count, alignment);
        REQUIRE(pages.take(count, alignment) == expected);
        if (expected == page_bitmap::none) continue;
        for (std::size_t i = 0; i < count; ++i) used[expected + i] = true;
      } else {
        const std::size_t first = random() % size;
        std::size_t count = 0;
        while (first + count < size && used[first + count] && count < 5) ++count;
        if (count == 0) continue;
        pages.give_back(first, count);
        for (std::size_t i = 0; i < count; ++i) used[first + i] = false;
      }
    }
  }
}
