#pragma once

#include "job.hpp"
#include "meter.hpp"

#include <cordma/connection/connection.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/memory/slice.hpp>

namespace perf {

/// Does one operation after another, each made by `make`, until `m` takes no more.
template <class Make>
cordma::task<> repeat(meter& m, Make make) {
  clock::time_point start = clock::now();
  while (m.takes_another(start)) {
    while (m.is_early(start)) co_await cordma::sleep_until(m.next_wake(start));
    if (!m.begins(start)) break;
    static_cast<void>(co_await make());
    start = m.record(start);
  }
}

/// Repeats an operation that no program of the peer's takes part in, `op`, on the peer's memory.
cordma::task<> repeat_one_sided(cordma::connection& conn, operation op, meter& m,
                                cordma::local_mr_slice here, cordma::remote_mr_slice there);

}  // namespace perf
