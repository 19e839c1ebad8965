// Tasks are coroutines that start when they are awaited, and run side by side in a scope. The
// awaiting coroutine gets their values and errors. Needs no RDMA device.

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/io/executor.hpp>

#include <cstdio>

namespace {

cordma::task<int> square(int x) { co_return x* x; }

cordma::task<> fail_politely() {
  throw cordma::error{{.code = cordma::errc::refused, .call = "fail_politely"}};
  co_return;
}

cordma::task<> worker(int number) {
  std::printf("worker %d\n", number);
  co_return;
}

cordma::task<> main_task() {
  // Two tasks run one after the other.
  std::printf("3 squared is %d\n", co_await square(3));

  // Two at once: a tuple of their values.
  const auto [four, nine] = co_await cordma::when_all(square(2), square(3));
  std::printf("side by side: %d and %d\n", four, nine);

  // A failure as a value rather than an exception.
  const cordma::result<void> outcome = co_await cordma::as_result(fail_politely());
  std::printf("it failed: %s\n", outcome.failure().to_string().c_str());

  // A scope takes as many tasks as you like; the scope is left when all of them have ended.
  co_await cordma::with_scope([](cordma::scope& workers) -> cordma::task<> {
    for (int i = 1; i <= 3; ++i) workers.spawn(worker(i));
    co_return;
  });
}

}  // namespace

int main() try {
  cordma::executor executor;
  executor.run(main_task());
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
