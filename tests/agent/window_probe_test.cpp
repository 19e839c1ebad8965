#include "../../lib/agent/window_probe.hpp"

#include <cordma/base/error.hpp>
#include "support/device.hpp"
#include "support/leaks.hpp"
#include "support/memory_host.hpp"
#include "support/verbs_faults.hpp"
#include "verbs/device.hpp"

#include <catch2/catch.hpp>

#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

using namespace cordma;

namespace {

/// A device, and what a program has of it before the probe. A domain that still has something, as a
/// window, aborts when it goes.
struct opened_device {
  verbs::context ctx{test::device_name()};
  verbs::port_info port = ctx.active_port();
  verbs::gid_entry gid = verbs::choose_gid(ctx.gid_table(port.number));
  verbs::protection_domain pd{ctx};
  ibv_context_ops& provider = ctx.native_handle()->ops;

  manual_clock clock;
  test::memory_host host;
  executor exec{on_host()};

  bool checks_window_ranges() { return cordma::checks_window_ranges(exec, ctx, pd, port, gid); }

 private:
  executor_options on_host() {
    executor_options options = test::on_memory(host);
    options.clock = &clock;
    return options;
  }
};

failure failure_of_probe(opened_device& device) {
  const std::string before = test::holdings();
  failure f{};
  try {
    (void)device.checks_window_ranges();
  } catch (const error& e) {
    f = e.failure();
  }
  INFO(f.to_string());
  CHECK(test::holdings() == before);
  return f;
}

ibv_context_ops real{};
int passed_on = 0;     // requests, or polls that found something
int passed_max = 0;    // the number from which on calls go wrong
ibv_wc_status status;  // the status of polls that go wrong

int post_or_refuse(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  if (passed_on++ < passed_max) return real.post_send(qp, wr, bad);
  *bad = wr;
  return ENOMEM;
}
int poll_or_spoil(ibv_cq* cq, int count, ibv_wc* wc) {
  const int n = real.poll_cq(cq, count, wc);
  if (n > 0 && passed_on++ >= passed_max) wc->status = status;
  return n;
}
int poll_nothing(ibv_cq*, int, ibv_wc*) { return 0; }
int poll_and_fail(ibv_cq*, int, ibv_wc*) { return -EIO; }
ibv_mw* no_window(ibv_pd*, ibv_mw_type) {
  errno = ENOMEM;
  return nullptr;
}

}  // namespace

TEST_CASE("a device tells by a READ whether it checks the range of a window", "[agent][device]") {
  const std::string before = test::holdings();
  {
    opened_device device;
    const bool checks = device.checks_window_ranges();
    if (test::is_soft()) CHECK(checks);
    if (test::is_rxe()) CHECK_FALSE(checks);
    CHECK(device.checks_window_ranges() == checks);
    // The refusal breaks a queue pair, which is nobody's concern.
    CHECK_FALSE(verbs::next_async_event(device.ctx).has_value());
  }
  CHECK(test::holdings() == before);
}

TEST_CASE("a probe whose setup fails at any step leaves nothing behind", "[agent][device]") {
  opened_device device;
  verbs_faults::fail_call(0, 0);
  (void)device.checks_window_ranges();
  const unsigned steps = verbs_faults::calls_made();
  REQUIRE(steps == 10);
  for (unsigned k = 1; k <= steps; ++k) {
    verbs_faults::fail_call(k, ENOMEM);
    const failure f = failure_of_probe(device);
    CHECK(f.code == std::error_code{ENOMEM, std::system_category()});
    CHECK(std::string{f.call} == verbs_faults::failed_call());
  }
  verbs_faults::fail_call(0, 0);
}

TEST_CASE("a probe that gets no window leaves nothing behind", "[agent][device]") {
  opened_device device;
  device.provider.alloc_mw = &no_window;
  CHECK(std::string{failure_of_probe(device).call} == "ibv_alloc_mw");
}

TEST_CASE("a probe whose bind or READ fails says which, and leaves nothing behind",
          "[agent][device]") {
  opened_device device;
  real = device.provider;
  const char* const said[] = {"a bind", "a READ of what the window", "a READ just beyond"};
  for (int k = 0; k < 3; ++k) {
    passed_max = k;
    device.provider.post_send = &post_or_refuse;
    passed_on = 0;
    const failure refused = failure_of_probe(device);
    CHECK(refused.code == std::error_code{ENOMEM, std::system_category()});
    CHECK(refused.to_string().find(said[k]) != std::string::npos);
    device.provider.post_send = real.post_send;

    device.provider.poll_cq = &poll_or_spoil;
    for (const ibv_wc_status each : {IBV_WC_WR_FLUSH_ERR, IBV_WC_RETRY_EXC_ERR}) {
      status = each;
      passed_on = 0;
      const failure spoiled = failure_of_probe(device);
      CHECK(spoiled.code == wc_errc(each));
      CHECK(spoiled.to_string().find(said[k]) != std::string::npos);
    }
    device.provider.poll_cq = real.poll_cq;
  }
  // A refusal is an answer only beyond the window.
  device.provider.poll_cq = &poll_or_spoil;
  status = IBV_WC_REM_ACCESS_ERR;
  passed_max = 1;
  passed_on = 0;
  CHECK(failure_of_probe(device).code == wc_errc::remote_access);
  passed_max = 2;
  passed_on = 0;
  CHECK(device.checks_window_ranges());
}

TEST_CASE("a probe gives up on a device that says nothing, or cannot be asked", "[agent][device]") {
  opened_device device;
  device.provider.poll_cq = &poll_nothing;
  int pauses = 0;
  device.host.on_pause = [&] {
    ++pauses;
    device.clock.advance(std::chrono::seconds{1});
  };
  CHECK(failure_of_probe(device).code == errc::timed_out);
  CHECK(pauses == 3);
  device.provider.poll_cq = &poll_and_fail;
  CHECK(failure_of_probe(device).code == errc::device_failed);
}
