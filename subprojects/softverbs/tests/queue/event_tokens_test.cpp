#include "queue/event_tokens.hpp"

#include <poll.h>

#include <catch2/catch.hpp>

namespace {

using softverbs::event_tokens;

bool readable(const event_tokens& tokens) {
  pollfd ready{.fd = tokens.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&ready, 1, 0) == 1;
}

}  // namespace

TEST_CASE("a token that nobody took goes with its event", "[queue]") {
  event_tokens tokens;
  tokens.put();
  tokens.put();
  tokens.withdraw();
  CHECK(readable(tokens));
  REQUIRE(tokens.take());
  CHECK(tokens.spend());
  CHECK_FALSE(readable(tokens));
}

TEST_CASE("a reader whose event went does not take the next one's", "[queue]") {
  event_tokens tokens;
  tokens.put();
  REQUIRE(tokens.take());
  tokens.withdraw();
  tokens.put();
  CHECK_FALSE(tokens.spend());
  CHECK(readable(tokens));
  REQUIRE(tokens.take());
  CHECK(tokens.spend());
  CHECK_FALSE(readable(tokens));
}

TEST_CASE("of several readers as many find nothing as events went", "[queue]") {
  event_tokens tokens;
  for (int i = 0; i < 3; ++i) {
    tokens.put();
    REQUIRE(tokens.take());
  }
  tokens.withdraw();
  tokens.withdraw();
  CHECK(tokens.spend() + tokens.spend() + tokens.spend() == 1);
}
