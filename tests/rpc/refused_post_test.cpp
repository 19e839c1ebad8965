// A device that refuses what is posted breaks one connection, and nothing else.
#include <support/manual_executor.hpp>

#include <support/rpc_pair.hpp>
#include "request/queue_pair.hpp"

#include <catch2/catch.hpp>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using support::started;
using test::check_echo;
using test::pattern;
using test::reconnecting;
using test::rpc_server;
using test::why_it_fails;

namespace {

/// While it is there, the device refuses what is posted to one queue pair: of a chain all but the
/// first.
class refusal {
 public:
  explicit refusal(queue_pair& qp) : context_{*qp.verbs().native_handle()->context} {
    victim = qp.verbs().num();
    real = std::exchange(context_.ops.post_send, &post);
  }
  refusal(const refusal&) = delete;
  ~refusal() { context_.ops.post_send = real; }

 private:
  static int post(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    if (qp->qp_num != victim) return real(qp, wr, bad);
    *bad = wr;
    if (ibv_send_wr* const rest = std::exchange(wr->next, nullptr)) {
      if (real(qp, wr, bad) == 0) *bad = rest;
      wr->next = rest;
    }
    return EIO;
  }
  static inline std::uint32_t victim = 0;
  static inline decltype(ibv_context_ops::post_send) real = nullptr;
  ibv_context& context_;  // Outlives the queue pair.
};

constexpr std::size_t long_bytes = 20'000;

struct big : rpc::method<"test.big", rpc::nothing, std::string> {};
struct take : rpc::method<"test.take", std::string, std::uint64_t> {};
struct read_it : rpc::method<"test.read_it", rpc::nothing> {};

task<rpc::nothing> read_source(rpc::server_call& call) {
  static_cast<void>(co_await call.fetch_source(1 << 20));
  co_return {};
}

struct large_server : rpc_server {
  explicit large_server(const rpc::server_options& options = {}) : rpc_server{options} {
    server.handle<big>([this](rpc::nothing, rpc::server_call& call) -> task<std::string> {
      if (is_refused) refused.emplace(call.connection().qp());
      co_return std::string(long_bytes, 'x');
    });
    server.handle<take>([](std::string text) -> task<std::uint64_t> { co_return text.size(); });
    server.handle<read_it>([](rpc::nothing, rpc::server_call& call) { return read_source(call); });
  }
  bool is_refused = false;
  std::optional<refusal> refused;
};

}  // namespace

TEST_CASE("a large answer whose announcement the device refuses ends with the connection",
          "[rpc][soft0]") {
  large_server s;
  rpc::client c = s.make_client();
  s.rt.run([](large_server& answering, rpc::client& calling) -> task<> {
    answering.is_refused = true;
    const failure why = co_await why_it_fails<big>(calling, {});
    CHECK(why.code == errc::disconnected);
    answering.refused.reset();
    co_await test::until(answering.rt.executor(),
                         [&] { return answering.server.counters().connections == 0; });
    CHECK(answering.server.counters().running == 0);
  }(s, c));
}

TEST_CASE("a large request whose announcement the device refuses ends with the connection",
          "[rpc][soft0]") {
  large_server s;
  rpc::client c = s.make_client();
  s.rt.run([](rpc::client& calling) -> task<> {
    const refusal refused{calling.connection()->qp()};
    const failure why = co_await why_it_fails<take>(calling, std::string(long_bytes, 'x'));
    CHECK(why.code == std::error_code{EIO, std::system_category()});
    CHECK(calling.connection() == nullptr);
  }(c));
}

TEST_CASE("a window that was bound for a request that the device refused serves nobody else",
          "[rpc][soft0]") {
  large_server s;
  rpc::client c = s.make_client();
  rpc::client other = s.make_client();
  local_mr source = s.rt.memory().allocate_zeroed(4096);
  s.rt.run([](rpc::client& calling, rpc::client& beside, local_mr& from) -> task<> {
    {
      const refusal refused{calling.connection()->qp()};
      const failure why = co_await why_it_fails<read_it>(calling, {}, {.source = from.slice()});
      CHECK(why.code == std::error_code{EIO, std::system_category()});
    }
    for (unsigned n = 0; n < 64; ++n)
      static_cast<void>(co_await beside.call<read_it>({}, {.source = from.slice()}));
    CHECK(beside.connection() != nullptr);
  }(c, other, source));
}

TEST_CASE("a large request that was not announced when the connection went is sent on the next",
          "[rpc][soft0]") {
  large_server s{{.stream = {.depth = 8}}};
  reconnecting r{s};
  s.rt.run([](large_server& answering, reconnecting& to) -> task<> {
    cordma::executor& executor = answering.rt.executor();
    // The calls take all buffers of the server: nothing else is sent.
    std::vector<std::unique_ptr<started<rpc::detail::call_op<test::wait_again>>>> calls;
    for (unsigned n = 0; n < 4; ++n)
      calls.push_back(std::make_unique<started<rpc::detail::call_op<test::wait_again>>>(
          executor, to.calling.call<test::wait_again>(1)));
    co_await test::until(executor, [&] { return answering.running == 4; });
    started large{executor, to.calling.call<take>(std::string(long_bytes, 'x'))};
    to.lose();
    answering.open(1);
    co_await test::until(executor, [&] { return large.has_ended(); });
    CHECK((*large).take() == long_bytes);
    for (const auto& call : calls)
      co_await test::until(executor, [&] { return call->has_ended(); });
  }(s, r));
}
