#pragma once

#include "bench.hpp"

#include <cordma/verbs/device.hpp>

#include <string>
#include <string_view>

namespace bench {

/// A program of perftest's, with its options.
struct perftest_program {
  std::string name;
  std::string options;
};

/// Tells whether perftest can be run beside: on soft0, where perftest gets this process's device.
[[nodiscard]] bool has_perftest(std::string_view device);

/// Runs it as two processes, and returns the figure that it prints last. A bandwidth is in million
/// messages a second, a latency the median in microseconds.
[[nodiscard]] double run_perftest(const cordma::verbs::context& ctx,
                                  const cordma::verbs::port_info& port,
                                  const perftest_program& program);
/// The median of some runs.
[[nodiscard]] double perftest_latency_us(const cordma::verbs::context& ctx,
                                         const cordma::verbs::port_info& port,
                                         const perftest_program& program);
/// Records a latency of ours beside the program's, where it can be run.
void beside_perftest(recorder& to, const cordma::verbs::context& ctx,
                     const cordma::verbs::port_info& port, std::string_view which, double ns,
                     const perftest_program& program);

}  // namespace bench
