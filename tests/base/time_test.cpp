#include <cordma/base/time.hpp>

#include <catch2/catch.hpp>

using namespace cordma;
using namespace std::chrono_literals;

TEST_CASE("a length of time in any unit is as long as the clock can count, at most", "[base]") {
  namespace c = std::chrono;
  CHECK(duration{time_span{7ms}} == 7ms);
  CHECK(duration{time_span{c::nanoseconds::max()}} == duration::max());
  CHECK(duration{time_span{c::milliseconds::max()}} == duration::max());
  CHECK(duration{time_span{c::hours::max()}} == duration::max());
  CHECK(duration{time_span{c::minutes::min()}} == duration::min());
  CHECK(duration{time_span{c::duration<double>{1e300}}} == duration::max());
  CHECK(duration{time_span{c::duration<double>{0.5}}} == 500ms);
  const time_point now{1h};
  CHECK(detail::after(now, c::seconds::max()) == time_point::max());
  CHECK(detail::after(now, 1s) == now + 1s);
  CHECK(detail::after(now, -1s) == now - 1s);
}
