#include "verbs/device.hpp"

#include "verbs/loopback.hpp"

#include <catch2/catch.hpp>

#include <string>

using namespace cordma::verbs;
using namespace cordma::verbs::test;

TEST_CASE("the async fd is read until it is empty, without blocking", "[verbs][device][E7]") {
  context ctx{device_name()};
  unsigned events = 0;
  while (next_async_event(ctx) && events < 100) ++events;
  CHECK(events < 100);
  CHECK_FALSE(next_async_event(ctx).has_value());
  CHECK(std::string{to_string(IBV_EVENT_CQ_ERR)} == "CQ error");
}
