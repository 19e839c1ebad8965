// Texts of prepared connections with a bit changed, or used again: each is refused by name, and
// nothing is left of it. What only changes the case of a digit connects.

#include <cordma/connection/prepared_connection.hpp>

#include "support/connected_pair.hpp"
#include "support/leaks.hpp"
#include "support/soak.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cctype>
#include <iostream>
#include <map>
#include <random>
#include <string>

using namespace cordma;

namespace {

failure failure_of(runtime& rt, task<connection> t) {
  const auto outcome = rt.run(as_result(std::move(t)));
  return outcome.has_failure() ? outcome.failure() : failure{};
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return text;
}

/// Changes one of the low 7 bits of a character: the text stays ASCII.
std::string flipped(std::string text, std::mt19937_64& random) {
  text[random() % text.size()] ^= char(1u << random() % 7);
  return text;
}

/// Changes the case of one digit. The prefix has a case of its own.
std::string recased(std::string text, std::mt19937_64& random) {
  constexpr std::size_t prefix = 7;
  for (;;) {
    char& c = text[prefix + random() % (text.size() - prefix)];
    if (c < 'a' || c > 'f') continue;
    c = char(std::toupper(c));
    return text;
  }
}

struct texts {
  runtime rt{test::on_test_device()};
  std::mt19937_64 random;
  std::map<std::string, std::uint64_t> endings{};
  std::uint64_t wrong = 0;

  explicit texts(std::uint64_t seed) : random{seed} {}

  /// Connects by a text with a bit changed, and then by what the first attempt has used.
  void refuse_flipped(const std::string& right) {
    const std::string text = flipped(right, random);
    if (lower(text).substr(7) == right.substr(7) && text.starts_with("cordma-")) return connect();
    prepared_connection mine = rt.prepare_connection();
    const failure why = failure_of(rt, mine.connect(text));
    ++endings[why.code.message()];
    const bool is_named = why.code == errc::bad_handshake || why.code == errc::incompatible_peer;
    const failure again = failure_of(rt, mine.connect(right));
    wrong += is_named && again.code == errc::refused ? 0 : 1;
  }
  /// Connects two sides by texts of another case, and then a third by a text that was used.
  void connect() {
    prepared_connection one = rt.prepare_connection();
    prepared_connection other = rt.prepare_connection();
    const std::string of_one = recased(one.info(), random);
    const std::string of_other = recased(other.info(), random);
    const auto [a, b] = rt.run(when_all(one.connect(of_other), other.connect(of_one)));
    prepared_connection third = rt.prepare_connection();
    const failure again = failure_of(rt, third.connect(of_one));
    ++endings["connected"];
    wrong += a.is_open() && b.is_open() && again.code == errc::refused ? 0 : 1;
  }
  std::string held() {
    rt.run(test::until(rt.executor(), [&] { return rt.executor().closer().running() == 0; }));
    return test::holdings();
  }
};

void check_texts(std::uint64_t changed, std::uint64_t recased, std::uint64_t seed) {
  texts t{seed};
  t.connect();
  const std::string before = t.held();
  {
    prepared_connection other = t.rt.prepare_connection();
    const std::string right = other.info();
    for (std::uint64_t n = 0; n < changed; ++n) t.refuse_flipped(right);
  }
  for (std::uint64_t n = 0; n < recased; ++n) t.connect();
  CHECK(t.wrong == 0);
  CHECK(t.held() == before);
  for (const auto& [ending, count] : t.endings) std::cout << count << ' ' << ending << "; ";
  std::cout << std::endl;
}

}  // namespace

TEST_CASE("a prepared connection refuses a text with a bit changed, and is used up by it",
          "[connection][device][N2]") {
  check_texts(2000, 20, 1);
}

TEST_CASE("a million prepared connections refuse a text with a bit changed",
          "[.soak-prepared][device][N2]") {
  const std::uint64_t count = test::soak::count(1'000'000);
  check_texts(count, count / 1000 + 1, test::soak::seed());
}
