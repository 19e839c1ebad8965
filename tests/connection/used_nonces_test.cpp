#include "connection/used_nonces.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace std::chrono_literals;

TEST_CASE("a nonce is new once, until its lifetime is over", "[connection]") {
  detail::used_nonces used;
  const handshake::nonce one = handshake::random_nonce();
  const time_point start{};
  CHECK(used.add(one, start, 60s));
  CHECK_FALSE(used.add(one, start + 59s, 60s));
  CHECK(used.add(handshake::random_nonce(), start + 59s, 60s));
  CHECK(used.add(one, start + 60s, 60s));
}

TEST_CASE("so many nonces are kept, and the oldest goes first", "[connection]") {
  detail::used_nonces used;
  const handshake::nonce first = handshake::random_nonce();
  handshake::nonce last{};
  CHECK(used.add(first, {}, 60s));
  for (std::size_t n = 0; n < detail::used_nonces::kept_max; ++n) {
    last = handshake::random_nonce();
    used.add(last, {}, 60s);
  }
  CHECK_FALSE(used.add(last, {}, 60s));
  CHECK(used.add(first, {}, 60s));
}
