#include <cordma/detail/queue/posted_requests.hpp>

#include "support/held.hpp"
#include "support/loopback.hpp"

#include <catch2/catch.hpp>

#include <optional>

using namespace cordma;
using test::held_by;
using test::loopback;
using test::nothing;

namespace {

/// Posts one WRITE after the other, each when it is told of the one before.
struct writer {
  using told = told_request<write_request<1>, writer>;
  void post() {
    request.emplace(link.a->sends(), write(from, to.remote_slice()), *this,
                    [](writer& w) noexcept { w.on_end(); });
    request->post();
  }
  void on_end() noexcept {
    const auto outcome = request->outcome();
    request.reset();
    bytes += outcome.has_value() ? *outcome : 0;
    failures += outcome.has_value() ? 0 : 1;
    if (bytes < bytes_max && failures == 0) post();
  }
  loopback& link;
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  std::size_t bytes_max = 0;
  std::optional<told> request{};
  std::size_t bytes = 0;
  int failures = 0;
};

}  // namespace

TEST_CASE("who is told of an end is told by the reap, and may destroy the request and post another",
          "[queue][device]") {
  loopback link{{.cq = {.mode = completion_mode::manual}}};
  writer ten{.link = link, .bytes_max = 640};
  ten.post();
  while (ten.bytes < 640) link.driver.reap();
  CHECK_FALSE(link.executor.has_ready());
  CHECK(held_by(*link.a) == nothing);
}

TEST_CASE("who is told of the first of several that ended may break the queue pair",
          "[queue][device]") {
  loopback link;
  const local_mr from = link.pattern(64);
  local_mr to = link.memory(64);
  told_request<write_request<1>, queue_pair> first{
      link.a->sends(), write(from, to.remote_slice(), {.signaled = false}), *link.a,
      [](queue_pair& qp) noexcept { qp.abort({.code = errc::closed, .call = "test"}); }};
  first.post();
  const auto last = link.a->post(write(from, to.remote_slice()));
  link.run_until([&] { return link.a->slots_in_use() == 0; });
  CHECK(first.outcome().has_value());
  CHECK(link.a->drained_event().is_set());
}

TEST_CASE("who is told that a request never had room may destroy it", "[queue][device]") {
  loopback link{{.capabilities = {.send_wr_max = 8, .recv_wr_max = 8}}};
  writer last{.link = link};
  while (link.a->sends().has_room())
    static_cast<void>(link.a->post(write(last.from, last.to.remote_slice())));
  last.post();
  CHECK(last.request->is_queued());
  link.a->abort({.code = errc::closed, .call = "test"});
  CHECK(last.failures == 1);
  CHECK_FALSE(last.request.has_value());
}

TEST_CASE("who is told of a refusal is told before the post returns", "[queue][device]") {
  loopback link;
  writer refused{.link = link};
  link.a->abort({.code = errc::closed, .call = "test"});
  refused.post();
  CHECK(refused.failures == 1);
  CHECK_FALSE(refused.request.has_value());
}
