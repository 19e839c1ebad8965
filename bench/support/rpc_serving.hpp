#pragma once

#include "bench.hpp"

#include <support/device.hpp>
#include <support/until.hpp>

#include <cordma/coro/scope.hpp>
#include <cordma/rpc/client.hpp>
#include <cordma/rpc/server.hpp>
#include <cordma/runtime/runtime.hpp>
#include <cordma/verbs/memory_region.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace bench {

using view = std::span<const std::byte>;
struct echo : cordma::rpc::method<"bench.echo", view, view> {};
constexpr std::size_t echo_bytes = 32;
inline cordma::task<view> echo_back(view request) { co_return request; }

/// Reads its source into the memory of that number.
struct put : cordma::rpc::method<"bench.put", std::uint32_t> {};
constexpr std::size_t bulk_bytes = std::size_t{1} << 20;
/// A bulk round measures the bandwidth of a transfer that goes on, and not of its begin. The caches
/// then hold only what the other side has moved.
constexpr std::chrono::milliseconds bulk_round{50};

/// Memory for so many at once. Pages that nobody ever wrote would be all one and the same, which is
/// in every cache.
inline std::vector<cordma::local_mr> bulk_memory(cordma::runtime& rt, unsigned count) {
  std::vector<cordma::local_mr> all;
  for (; count > 0; --count) {
    cordma::local_mr& one = all.emplace_back(rt.memory().allocate_uninitialized(bulk_bytes));
    std::ranges::fill(one.bytes(), std::byte{0x5a});
  }
  return all;
}

/// Registers our memory for raw verbs, too, since where pages lie changes a copy by five parts in a
/// hundred.
using raw_regions = std::deque<cordma::verbs::memory_region>;
inline raw_regions register_for_raw(cordma::verbs::protection_domain& pd,
                                    std::span<cordma::local_mr> memory) {
  using enum cordma::verbs::access;
  raw_regions all;
  for (cordma::local_mr& each : memory)
    all.emplace_back(pd, each.bytes().data(), each.size_bytes(), local_write | remote_write);
  return all;
}

inline cordma::runtime_options busy() {
  return {.device = cordma::test::device_name(), .cq = {.mode = cordma::completion_mode::busy}};
}

/// A server of one connection, with a runtime of its own.
struct serving {
  serving() {
    answering.handle<echo>(&echo_back);
    answering.handle<put>(
        [this](std::uint32_t n, cordma::rpc::server_call& call) { return read(n, call); });
  }
  ~serving() {
    work.request_stop();
    rt.run(work.join());
  }
  /// Serves who calls from there.
  void begin(const cordma::endpoint& caller) {
    work.spawn(answering.serve(rt.run(rt.connect(caller))));
  }
  /// Returns when it has sent that many replies more. Some may have been sent ahead: who calls
  /// does not wait until the last time has returned.
  void reply(std::uint64_t n) {
    due += n;
    rt.run(cordma::test::until(rt.executor(), [&] { return answering.counters().replied >= due; }));
  }

  cordma::runtime rt{busy()};
  cordma::rpc::server answering;
  cordma::scope work{rt.executor()};
  std::uint64_t due = 0;
  std::vector<cordma::local_mr> to;  ///< memory that `put` reads into

 private:
  cordma::task<cordma::rpc::nothing> read(std::uint32_t n, cordma::rpc::server_call& call) {
    const cordma::remote_mr source = call.source();
    co_await call.connection().read(to[n].slice(), source.slice());
    co_return {};
  }
};

/// Counts the bandwidth of the comparison whose figures begin with number `first`.
inline void count_bandwidth(recorder& to, std::string_view which, std::size_t first) {
  const figure time = to.figures()[first];
  constexpr double mib = double(bulk_bytes) / (1 << 20);
  to.count(which, "bandwidth", "MiB/s", mib * 1e9 / time.value, mib * 1e9 / time.baseline);
}

/// Calls `put`, as many at once as there is memory.
class putting {
 public:
  putting(cordma::runtime& rt, cordma::rpc::client& to, unsigned depth)
      : rt_{rt}, client_{to}, from_{bulk_memory(rt, depth)} {}
  void put(std::uint64_t n) { rt_.run(put_all(n)); }
  [[nodiscard]] std::span<cordma::local_mr> from() noexcept { return from_; }

 private:
  cordma::task<> put_all(std::uint64_t n) {
    const std::size_t depth = from_.size();
    cordma::scope callers{rt_.executor()};
    for (std::size_t i = 0; i < depth; ++i)
      callers.spawn(put_each(std::uint32_t(i), n / depth + (i < n % depth ? 1 : 0)));
    co_await callers.join();
  }
  cordma::task<> put_each(std::uint32_t which, std::uint64_t n) {
    for (; n > 0; --n) co_await client_.call<bench::put>(which, {.source = from_[which].slice()});
  }
  cordma::runtime& rt_;
  cordma::rpc::client& client_;
  std::vector<cordma::local_mr> from_;
};

}  // namespace bench
