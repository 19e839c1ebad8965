// cordma's collectives, through the public interface. The ranks meet by RANK, WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT.
//     group_collectives [busy|adaptive|event]

#include "orders.hpp"

#include <cordma/group/group.hpp>
#include <cordma/runtime/runtime.hpp>

#include <support/device.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using bench::order;
using cordma::task;

/// One operation with its buffers in place.
using awaited_collective = std::function<task<>()>;

cordma::completion_mode mode_by(std::string_view name) {
  if (name == "busy") return cordma::completion_mode::busy;
  if (name == "adaptive") return cordma::completion_mode::adaptive;
  if (name == "event") return cordma::completion_mode::event;
  throw std::runtime_error{"no such completion mode: " + std::string{name}};
}

cordma::group_options without_heartbeats() {
  // A rank that waits for an order does not run its executor.
  return {.connections = {.heartbeat = {{.enabled = false}}}};
}

class group_rank {
 public:
  explicit group_rank(cordma::completion_mode mode)
      : rt_{{.device = cordma::test::device_name(), .cq = {.mode = mode}}},
        group_{rt_.run(
            cordma::group::join(rt_, cordma::meeting::by_environment(), without_heartbeats()))},
        in_{rt_.memory().allocate_zeroed(bench::collective_bytes_max)},
        out_{rt_.memory().allocate_zeroed(bench::collective_bytes_max)} {}

  /// Returns the seconds that all the work took; none: there is no such operation.
  std::optional<double> serve(const order& asked) {
    const awaited_collective once = prepare(asked);
    if (!once) return std::nullopt;
    return rt_.run(measure(once, asked.count));
  }

  void leave() { rt_.run(group_.leave()); }

 private:
  task<double> measure(const awaited_collective& once, std::uint64_t count) {
    co_await once();
    co_await group_.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < count; ++i) co_await once();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    co_return took.count();
  }
  awaited_collective prepare(const order& asked);

  cordma::runtime rt_;
  cordma::group group_;
  cordma::local_mr in_, out_;
};

awaited_collective group_rank::prepare(const order& asked) {
  constexpr auto sum = cordma::reduction::sum;
  const cordma::const_local_mr_slice in = in_.slice(0, asked.bytes);
  const cordma::local_mr_slice out = out_.slice(0, asked.bytes);
  const std::size_t block = asked.bytes / group_.size();
  const cordma::const_local_mr_slice own = out.slice(group_.rank() * block, block);
  const cordma::local_mr_slice block_out = out_.slice(0, block);
  if (asked.operation == "barrier") return [this] { return group_.barrier(); };
  if (asked.operation == "broadcast")
    return
        [this, out, root = 0u]() mutable { return group_.broadcast(out, root++ % group_.size()); };
  if (asked.operation == "all_gather")
    return [this, own, out] { return group_.all_gather(own, out); };
  if (asked.operation == "all_reduce")
    return [this, out] { return group_.all_reduce<float>(out, out, sum); };
  if (asked.operation == "reduce_scatter")
    return [this, in, block_out] { return group_.reduce_scatter<float>(in, block_out, sum); };
  if (asked.operation == "all_to_all")
    return [this, in, out] { return group_.all_to_all(in, out); };
  return {};
}

}  // namespace

int main(int argc, char** argv) try {
  const bench::rank_of mine = bench::begin_rank();
  group_rank here{mode_by(argc > 1 ? argv[1] : "busy")};
  bench::order_socket driver{mine.rank};
  while (const std::optional<order> asked = driver.next()) driver.answer(here.serve(*asked));
  here.leave();
} catch (const std::exception& error) {
  std::cerr << "group_collectives: " << error.what() << '\n';
  return 1;
}
