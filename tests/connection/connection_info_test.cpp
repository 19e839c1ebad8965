#include "connection/connection_info.hpp"

#include "support/soak.hpp"
#include "support/some_hello.hpp"

#include <catch2/catch.hpp>

#include <random>

using namespace cordma;
using detail::info_text;
using detail::read_info;

namespace {

handshake::hello some() {
  handshake::hello h = test::some_hello(0x1234);
  h.nonce = handshake::random_nonce();
  return h;
}

bool is_refused(const std::string& text) {
  try {
    static_cast<void>(read_info(text));
    return false;
  } catch (const error& e) {
    return e.code() == errc::bad_handshake || e.code() == errc::incompatible_peer;
  }
}

/// Returns how many of `count` texts with a bit changed were taken.
std::uint64_t taken_with_a_bit_changed(std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  const std::string right = info_text(some());
  std::uint64_t taken = 0;
  for (std::uint64_t n = 0; n < count; ++n) {
    std::string text = right;
    // Bit 5 of a letter is its case, which says nothing.
    const unsigned bit = random() % 7 < 5 ? unsigned(random() % 5) : 6;
    text[random() % text.size()] ^= char(1u << bit);
    taken += is_refused(text) ? 0 : 1;
  }
  return taken;
}

}  // namespace

TEST_CASE("information is read as it was written, also with blanks around it", "[connection]") {
  const handshake::hello sent = some();
  const handshake::hello got = read_info(" \n" + info_text(sent) + "\r\n");
  CHECK(handshake::encode(got) == handshake::encode(sent));
}

TEST_CASE("information is one printable word", "[connection]") {
  const std::string text = info_text(some());
  CHECK(text.size() < 600);
  for (const char c : text) CHECK((c > ' ' && c <= '~'));
}

TEST_CASE("information that was damaged is refused, and the error says how", "[connection][N2]") {
  const std::string right = info_text(some());
  const auto says = [](std::string text, const char* what) {
    CHECK_THROWS_WITH(read_info(text), Catch::Contains(what));
  };
  says("", "does not begin as");
  says("rank 0: 10.0.0.1", "does not begin as");
  says(right.substr(0, 100), "was cut, or joined");
  says(right + right, "was cut, or joined");
  std::string other = right;
  other[20] = 'x';
  says(other, "no hexadecimal digit at 19");
  other = right;
  other.back() = other.back() == '0' ? '1' : '0';
  says(other, "the checksum does not fit");
  other = right;
  other[7 + 9] = '9';  // The major version.
  says(other, "use the same major version");
}

TEST_CASE("information with any bit changed is refused", "[connection][N2]") {
  CHECK(taken_with_a_bit_changed(20'000, 1) == 0);
}

TEST_CASE("a million texts with a bit changed are refused", "[.soak-info][N2]") {
  CHECK(taken_with_a_bit_changed(test::soak::count(1'000'000), test::soak::seed()) == 0);
}
