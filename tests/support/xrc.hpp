#pragma once

#include "support/connected_pair.hpp"
#include "support/unreliable.hpp"
#include "support/until.hpp"

#include <cordma/queue/shared_receives.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

/// Ends a test case where the device has no XRC.
#define CORDMA_NEED_XRC() \
  if (!::cordma::test::has_xrc()) CORDMA_SKIP("rxe has no XRC")

namespace cordma::test {

inline bool has_xrc() { return verbs::context{device_name()}.limits().xrc; }

inline connection_options initiator() {
  connection_options o;
  o.transport = verbs::queue_pair_type::xrc_initiator;
  return o;
}
inline connection_options target(verbs::xrc_domain& domain) {
  connection_options o;
  o.transport = verbs::queue_pair_type::xrc_target;
  o.xrc_domain = &domain;
  return o;
}
inline shared_receives_options inbox(verbs::xrc_domain& domain, std::uint32_t buffers = 8,
                                     std::size_t buffer_bytes = 64) {
  return {.buffers = buffers,
          .buffer_bytes = buffer_bytes,
          .for_messages = true,
          .xrc_domain = &domain};
}
inline connection_options without_agent(connection_options o) {
  o.agent.enabled = false;
  return o;
}

inline std::uint32_t word_of(const shared_receives::message& m) {
  std::uint32_t value = 0;
  REQUIRE(m.payload().size_bytes() == sizeof value);
  std::memcpy(&value, m.payload().bytes().data(), sizeof value);
  return value;
}

/// A domain with two pools, and a listener for its targets.
struct xrc_host {
  explicit xrc_host(runtime& of, const connection_options& base = {})
      : rt{of}, acceptor{rt.listen({}, {}, as_target(base))} {}

  connection_options as_target(connection_options o) {
    o.transport = verbs::queue_pair_type::xrc_target;
    o.xrc_domain = &domain;
    return o;
  }
  std::pair<connection, connection> connect(connection_options base = {}) {
    base.transport = verbs::queue_pair_type::xrc_initiator;
    auto [from, to] =
        rt.run(when_all(rt.connect(acceptor.local_endpoint(), base), acceptor.accept()));
    return {std::move(from), std::move(to)};
  }

  runtime& rt;
  verbs::xrc_domain& domain = rt.open_xrc_domain();
  shared_receives& pool = rt.share_receives(inbox(domain));
  shared_receives& other = rt.share_receives(inbox(domain));
  listener acceptor;
};

/// Two connected halves on one runtime.
struct xrc_pair {
  explicit xrc_pair(const connection_options& base = {}) : host{rt, base} {
    auto [one, two] = host.connect(base);
    from = std::move(one);
    to = std::move(two);
  }
  task<> send(shared_receives& pool, std::uint32_t value) {
    local_mr out = rt.memory().allocate_zeroed(sizeof value);
    put(out, value);
    co_await from.to(pool.num()).send(out.slice());
  }

  runtime rt{on_test_device()};
  xrc_host host;
  connection from;
  connection to;
};

/// Awaits `op`, which fails. Returns why.
template <class Op>
failure why_failed(runtime& rt, Op&& op) {
  const auto outcome = rt.run(as_result(std::forward<Op>(op)));
  REQUIRE(outcome.has_failure());
  return outcome.failure();
}

}  // namespace cordma::test
