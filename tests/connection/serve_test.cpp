#include <cordma/connection/listener.hpp>

#include "support/connected_pair.hpp"
#include "support/foreign_task.hpp"
#include "support/manual_executor.hpp"
#include "support/until.hpp"

#include <cordma/coro/event.hpp>

#include <catch2/catch.hpp>

#include <stdexcept>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using support::started;

namespace {

struct server {
  server() : rt{test::on_test_device()}, acceptor{rt.listen()} {}

  connection dial() { return rt.run(rt.connect(acceptor.local_endpoint())); }
  template <class Condition>
  void until(Condition condition) {
    rt.run(test::until(rt.executor(), condition));
  }

  runtime rt;
  listener acceptor;
};

}  // namespace

TEST_CASE("a client that dies ends its own handler, whose error names it, and no other",
          "[connection][device][N4]") {
  server s;
  std::vector<std::string> told;
  int begun = 0;
  int heard = 0;
  const auto handle = [&](connection conn) -> task<> {
    ++begun;
    local_mr in = s.rt.memory().allocate_zeroed(8);
    for (;;) {
      co_await conn.recv(in.slice());
      ++heard;
    }
  };
  started serving{s.rt.executor(), serve(s.acceptor, handle, [&](const handler_failure& failed) {
                    told.push_back(failed.to_string());
                  })};
  std::string dead;
  connection other = s.dial();
  {
    connection one = s.dial();
    dead = one.local().to_string();
    s.until([&] { return begun == 2; });
  }
  s.until([&] { return !told.empty(); });
  REQUIRE(told.size() == 1);
  CHECK_THAT(told[0], Catch::StartsWith(dead + ": "));
  CHECK_FALSE(serving.has_ended());
  local_mr out = s.rt.memory().allocate_zeroed(8);
  s.rt.run(other.send(out.slice()));
  s.until([&] { return heard == 1; });
  connection late = s.dial();
  s.until([&] { return begun == 3; });
  serving.request_stop();
  s.until([&] { return serving.has_ended(); });
  CHECK((*serving).take_result().is_cancelled());
  CHECK(told.size() == 1);
}

TEST_CASE("a closed listener lets handlers end, and then its serving ends",
          "[connection][device]") {
  server s;
  event may_end{s.rt.executor()};
  bool has_begun = false;
  started serving{s.rt.executor(), serve(s.acceptor, [&](connection) -> task<> {
                    has_begun = true;
                    co_await may_end.wait();
                  })};
  const connection client = s.dial();
  s.until([&] { return has_begun; });
  s.rt.run(s.acceptor.close());
  CHECK_FALSE(serving.has_ended());
  may_end.set();
  s.until([&] { return serving.has_ended(); });
  CHECK_NOTHROW((*serving).take());
}

TEST_CASE("no more handlers run at once than connections_max", "[connection][device]") {
  server s;
  event may_end{s.rt.executor()};
  int running = 0;
  int begun = 0;
  int most = 0;
  const auto handle = [&](connection) -> task<> {
    ++begun;
    most = std::max(most, ++running);
    co_await may_end.wait();
    --running;
  };
  started serving{s.rt.executor(), serve(s.acceptor, handle, {}, 1)};
  const connection first = s.dial();
  const connection second = s.dial();
  s.until([&] { return begun == 1; });
  may_end.set();
  s.until([&] { return begun == 2; });
  CHECK(most == 1);
  s.rt.run(s.acceptor.close());
  s.until([&] { return serving.has_ended(); });
  CHECK_THROWS_WITH(s.rt.run(serve(s.acceptor, handle, {}, 0)),
                    Catch::Contains("connections_max 0"));
}

TEST_CASE("what a handler throws that is no exception is told, too", "[connection]") {
  const socket_address peer = socket_address::loopback(7471);
  CHECK(handler_failure{peer, std::make_exception_ptr(std::runtime_error{"gone"})}.to_string() ==
        "127.0.0.1:7471: gone");
  CHECK_THAT((handler_failure{peer, std::make_exception_ptr(1)}.to_string()),
             Catch::Contains("no std::exception"));
}

TEST_CASE("a coroutine that names no scheduler serves", "[connection][device]") {
  server s;
  int begun = 0;
  const auto foreign = [](server& of, int& count) -> support::foreign_task {
    co_await serve(of.acceptor, [&count](connection) -> task<> {
      ++count;
      co_return;
    });
  };
  const support::foreign_task serving = foreign(s, begun);
  const connection client = s.dial();
  s.until([&] { return begun == 1; });
  s.acceptor.close();
  s.until([&] { return serving.done(); });
  CHECK_NOTHROW(serving.rethrow());
  CHECK(begun == 1);
}
