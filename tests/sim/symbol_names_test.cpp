#include "sim/symbol_names.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>

#include <cstddef>
#include <string>

using namespace cordma;
using sim::detail::symbol_name;
using sim::detail::symbol_of;

namespace {

/// A function that the program does not export.
[[gnu::noinline]] int hidden_function(int n) { return n + 1; }

template <class F>
const void* inside(F* function) {
  return reinterpret_cast<const std::byte*>(function) + 1;
}

}  // namespace

extern "C" [[gnu::noinline]] int symbol_of_c(int n) { return n + 2; }

TEST_CASE("a function of the program has its name, also if it is not exported", "[sim]") {
  const symbol_name found = symbol_of(inside(&hidden_function));
  CHECK_THAT(found.text(), Catch::Contains("hidden_function(int)"));
  CHECK_FALSE(found.file.empty());
  CHECK(found.file.find('/') == std::string::npos);
  CHECK(symbol_of(inside(&symbol_of_c)).text() == "symbol_of_c");
}

TEST_CASE("a function of a library has its name", "[sim]") {
  const symbol_name found = symbol_of(inside(&::getppid));
  CHECK_THAT(found.text(), Catch::Contains("getppid"));
}

TEST_CASE("an address of no function is a file and an offset, or nothing", "[sim]") {
  static int variable = 0;
  CHECK_THAT(
      symbol_of(&variable).text(),
      Catch::StartsWith(symbol_of(inside(&hidden_function)).file) || Catch::Contains("variable"));
  const symbol_name none = symbol_of(nullptr);
  CHECK(none.file.empty());
  CHECK(none.function.empty());
  CHECK(none.text() == "+0x0");
}
