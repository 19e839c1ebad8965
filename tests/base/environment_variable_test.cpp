#include "base/environment_variable.hpp"

#include "support/variable.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cstdint>

using namespace cordma;
using test::variable;
namespace d = cordma::detail;

namespace {

constexpr const char* name = "CORDMA_TEST_NUMBER";

}  // namespace

TEST_CASE("a number is decimal, or hexadecimal after 0x, and nothing else", "[base]") {
  CHECK(d::parse_number("0") == 0);
  CHECK(d::parse_number("4096") == 4096);
  CHECK(d::parse_number("0x1F") == 0x1f);
  CHECK(d::parse_number("0Xff") == 0xff);
  CHECK(d::parse_number("010") == 10);
  CHECK(d::parse_number("18446744073709551615") == UINT64_MAX);
  for (const char* wrong : {"", "0x", "-1", "+1", " 1", "1 ", "1k", "1.5", "0x0x1", "0xg", "ten",
                            "18446744073709551616"}) {
    INFO("'" << wrong << "'");
    CHECK_FALSE(d::parse_number(wrong));
  }
}

TEST_CASE("a variable that is unset gives nothing, and an empty one is wrong", "[base]") {
  {
    const variable unset{name, nullptr};
    CHECK(d::variable_text(name) == nullptr);
    CHECK_FALSE(d::variable_number(name, 0, 9));
  }
  const variable empty{name, ""};
  CHECK_THROWS_WITH(d::variable_number(name, 0, 9),
                    Catch::Contains("CORDMA_TEST_NUMBER") &&
                        Catch::Contains("'' is no number from 0 to 9, decimal or hexadecimal"));
}

TEST_CASE("a variable's number lies in its range", "[base]") {
  const variable nine{name, "9"};
  CHECK(d::variable_number(name, 9, 9) == 9);
  CHECK_THROWS_WITH(d::variable_number(name, 0, 8),
                    Catch::Contains("'9' is no number from 0 to 8"));
  CHECK_THROWS_WITH(d::variable_number(name, 10, 11), Catch::Contains("from 10 to 11"));
  try {
    static_cast<void>(d::variable_number(name, 10, 11));
  } catch (const error& e) {
    CHECK(e.code() == std::errc::invalid_argument);
  }
}

TEST_CASE("a variable names one of some choices", "[base]") {
  constexpr std::array<d::named_value<int>, 2> choices{{{"one", 1}, {"two", 2}}};
  const auto chosen = [&] { return d::variable_choice(name, choices, "is neither one nor two"); };
  {
    const variable two{name, "two"};
    CHECK(chosen() == 2);
  }
  {
    const variable unset{name, nullptr};
    CHECK_FALSE(chosen());
  }
  const variable wrong{name, "twofold"};
  CHECK_THROWS_WITH(chosen(), Catch::Contains("'twofold' is neither one nor two"));
}
