#include <cordma/verbs/async_event.hpp>
#include <cordma/verbs/memory_region.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <cordma/base/error.hpp>
#include "support/verbs_faults.hpp"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace verbs = cordma::verbs;  // `access` alone would be ambiguous with access(2).
using namespace cordma::verbs;
using Catch::Matchers::Contains;

namespace {

std::string device_name() {
  const char* name = std::getenv("CORDMA_TEST_DEVICE");
  return name != nullptr ? name : "rxe0";
}

/// A queue pair connected to itself, and all that it needs; made in this order.
struct loopback {
  context ctx{device_name()};
  port_info port = ctx.active_port();
  gid_choice local = choose_gid(ctx.gid_table(port.number));
  protection_domain pd{ctx};
  std::vector<std::byte> bytes = std::vector<std::byte>(8192);
  memory_region mr{pd, bytes.data(), bytes.size(), verbs::access::local_write};
  completion_channel channel{ctx};
  completion_queue cq{ctx, 16, &channel, this};
  queue_pair qp{pd, cq, cq, {.send_wr_max = 4, .recv_wr_max = 4, .inline_max = 16}};

  rtr_attributes rtr() const {
    return {.peer = address_vector::by_gid(local.entry.gid, local.entry.index, port.lid),
            .path_mtu = port.mtu_active,
            .dest_qpn = qp.num(),
            .rq_psn = 0x123456};
  }
  static rts_attributes rts() { return {.sq_psn = 0x123456}; }
  void connect() {
    qp.to_init(port.number);
    qp.to_rtr(rtr());
    qp.to_rts(rts());
  }

  int post_recv() {
    ibv_sge sge{
        .addr = reinterpret_cast<std::uintptr_t>(mr.address()), .length = 64, .lkey = mr.lkey()};
    ibv_recv_wr wr{};
    wr.wr_id = 1;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return qp.post_recv(&wr, &bad);
  }
  int post_send() {
    ibv_sge sge{.addr = reinterpret_cast<std::uintptr_t>(mr.address() + 4096),
                .length = 64,
                .lkey = mr.lkey()};
    ibv_send_wr wr{};
    wr.wr_id = 2;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    return qp.post_send(&wr, &bad);
  }
  /// Polls until `count` completions came; the device finishes them within a bounded time.
  std::vector<ibv_wc> reap(std::size_t count) {
    std::vector<ibv_wc> all;
    for (unsigned long spins = 0; all.size() < count && spins < 500'000'000; ++spins) {
      std::array<ibv_wc, 4> some{};
      const int n = cq.poll(some);
      REQUIRE(n >= 0);
      all.insert(all.end(), some.begin(), some.begin() + n);
    }
    REQUIRE(all.size() == count);
    return all;
  }
};

template <class Action>
cordma::failure failure_of(Action action) {
  try {
    action();
  } catch (const cordma::error& e) {
    return e.failure();
  }
  FAIL("nothing failed");
  return {};
}

constexpr std::array<long, verbs_faults::kind_count> nothing_live{};

/// Runs `body` in a child that may lock `limit_bytes`, and returns what it says. A child, because
/// root passes whatever the limit is, and a dropped capability does not come back.
template <class Body>
std::string in_child_with_memlock(rlim_t limit_bytes, Body body) {
  int pipe_fds[2];
  REQUIRE(::pipe(pipe_fds) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    const rlimit limit{limit_bytes, limit_bytes};
    const bool ready =
        ::syscall(SYS_capset, &header, data) == 0 && ::setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
    const std::string text = ready ? body() : "cannot drop capabilities";
    const bool written = ::write(pipe_fds[1], text.data(), text.size()) == ssize_t(text.size());
    ::_exit(written ? 0 : 1);
  }
  ::close(pipe_fds[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n; (n = ::read(pipe_fds[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, std::size_t(n));
  }
  ::close(pipe_fds[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  return text;
}

}  // namespace

TEST_CASE("a queue pair goes RESET, INIT, RTR, RTS, ERROR, RESET and shows each state",
          "[verbs][device][N8]") {
  using enum queue_pair_state;
  loopback l;
  CHECK(l.qp.state() == reset);
  CHECK(l.qp.query_state() == reset);
  l.qp.to_init(l.port.number, 0, verbs::access::remote_write);
  CHECK(l.qp.state() == init);
  CHECK(l.qp.query_state() == init);
  l.qp.to_rtr(l.rtr());
  CHECK(l.qp.state() == rtr);
  CHECK(l.qp.query_state() == rtr);
  l.qp.to_rts(loopback::rts());
  CHECK(l.qp.state() == rts);
  CHECK(l.qp.query_state() == rts);
  l.qp.to_error();
  CHECK(l.qp.state() == error);
  CHECK(l.qp.query_state() == error);
  l.qp.to_reset();
  CHECK(l.qp.state() == reset);
  CHECK(l.qp.query_state() == reset);
  l.connect();
  CHECK(l.qp.query_state() == rts);
}

TEST_CASE("a transition that skips a state is refused and changes nothing", "[verbs][device][N8]") {
  loopback l;
  const cordma::failure failure = failure_of([&] { l.qp.to_rtr(l.rtr()); });
  CHECK(failure.code == cordma::errc::illegal_transition);
  CHECK_THAT(failure.to_string(), Contains("RESET to RTR") && Contains("goes to: RESET, INIT"));
  CHECK(l.qp.query_state() == queue_pair_state::reset);
}

TEST_CASE("an attribute that the port refuses is named", "[verbs][device][N8]") {
  loopback l;
  CHECK_THAT(failure_of([&] { l.qp.to_init(9); }).to_string(), Contains("port 9"));
  verbs_faults::fail_call(1, EINVAL);  // Injected: not every device checks index or MTU itself.
  CHECK_THAT(failure_of([&] { l.qp.to_init(l.port.number, 60000); }).to_string(),
             Contains("pkey_index 60000 is outside the port's table"));
  l.qp.to_init(l.port.number);
  rtr_attributes wrong = l.rtr();
  wrong.peer.gid_index = 200;
  CHECK_THAT(failure_of([&] { l.qp.to_rtr(wrong); }).to_string(), Contains("gid_index 200"));
  CHECK(l.qp.state() == queue_pair_state::init);
  if (l.port.mtu_active < IBV_MTU_4096) {
    wrong = l.rtr();
    wrong.path_mtu = IBV_MTU_4096;
    verbs_faults::fail_call(1, EINVAL);
    const auto text = failure_of([&] { l.qp.to_rtr(wrong); }).to_string();
    CHECK_THAT(text, Contains("path_mtu 4096 exceeds the port's active MTU"));
  }
  verbs_faults::fail_call(0, 0);
  l.qp.to_rtr(l.rtr());
}

TEST_CASE("a queue pair that the device moved to ERROR says so", "[verbs][device][N8]") {
  loopback l;
  l.qp.to_init(l.port.number);
  l.qp.to_rtr(l.rtr());
  ibv_qp_attr attributes{};  // Behind the library's back, which keeps the old state.
  attributes.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(l.qp.native_handle(), &attributes, IBV_QP_STATE) == 0);
  l.qp.native_handle()->state = IBV_QPS_RTR;
  CHECK_THAT(failure_of([&] { l.qp.to_rts(loopback::rts()); }).to_string(),
             Contains("moved it from RTR to ERROR"));
  CHECK(l.qp.state() == queue_pair_state::error);
}

TEST_CASE("capabilities are what the device gave, at least what was wanted",
          "[verbs][device][N9]") {
  loopback l;
  CHECK(l.qp.capabilities().send_wr_max >= 4);
  CHECK(l.qp.capabilities().recv_wr_max >= 4);
  CHECK(l.qp.capabilities().inline_max >= 16);
  CHECK(l.cq.capacity() >= 16);

  const std::uint32_t most = l.ctx.limits().qp_wr_max;
  const auto text = failure_of([&] {
                      queue_pair too_large{l.pd, l.cq, l.cq, {.send_wr_max = most + 1}};
                    }).to_string();
  CHECK_THAT(text, Contains(std::to_string(most + 1)) && Contains(std::to_string(most)));
  CHECK_THAT(failure_of([&] { completion_queue cq(l.ctx, 0); }).to_string(), Contains("depth 0"));
  CHECK_THAT(
      failure_of([&] { completion_queue cq(l.ctx, l.ctx.limits().cqe_max + 1); }).to_string(),
      Contains("depth " + std::to_string(l.ctx.limits().cqe_max + 1)));
  CHECK_THAT(failure_of([&] {
               completion_queue cq(l.ctx, 1, nullptr, nullptr, l.ctx.comp_vector_count());
             }).to_string(),
             Contains("comp_vector"));
}

TEST_CASE("a message to itself completes, with one event that is acknowledged by itself",
          "[verbs][device][E2]") {
  loopback l;
  l.connect();
  CHECK_FALSE(l.channel.get_event().has_value());
  std::memset(l.bytes.data() + 4096, 0x5a, 64);
  REQUIRE(l.cq.arm() == 0);
  REQUIRE(l.post_recv() == 0);
  REQUIRE(l.post_send() == 0);
  for (const ibv_wc& wc : l.reap(2)) CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(std::memcmp(l.bytes.data(), l.bytes.data() + 4096, 64) == 0);

  completion_queue moved = std::move(l.cq);  // The count follows the queue.
  const auto event = l.channel.get_event();
  REQUIRE(event.has_value());
  CHECK(event->cq == moved.native_handle());
  CHECK(event->cq_context == &l);
  CHECK(moved.unacknowledged_events() == 1);
  l.cq = std::move(moved);
  CHECK(l.cq.unacknowledged_events() == 1);
  l.qp.destroy();
  l.qp.destroy();
  l.cq.destroy();  // Hangs when the event is not acknowledged.
  CHECK_FALSE(next_async_event(l.ctx).has_value());
}

TEST_CASE("what is posted completes as flushed once the queue pair is in ERROR",
          "[verbs][device][C2]") {
  loopback l;
  l.connect();
  REQUIRE(l.post_recv() == 0);
  l.qp.to_error();
  CHECK(l.reap(1).front().status == IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("a memory region holds its keys and refuses access that makes no sense",
          "[verbs][device]") {
  loopback l;
  CHECK(l.mr.address() == l.bytes.data());
  CHECK(l.mr.length() == l.bytes.size());
  CHECK(l.mr.flags() == verbs::access::local_write);
  const auto text = failure_of([&] {
                      memory_region mr(l.pd, l.bytes.data(), 64, verbs::access::remote_write);
                    }).to_string();
  CHECK_THAT(text, Contains("remote_write needs local_write"));
}

TEST_CASE("a setup that fails at any step unwinds", "[verbs][device][C5]") {
  const auto set_up = [] {
    loopback l;
    l.connect();
  };
  verbs_faults::fail_call(0, 0);
  set_up();
  const unsigned steps = verbs_faults::calls_made();
  REQUIRE(steps == 9);
  for (unsigned k = 1; k <= steps; ++k) {
    verbs_faults::fail_call(k, ENOMEM);
    const cordma::failure failure = failure_of(set_up);
    INFO(k << ": " << failure.to_string());
    CHECK(failure.code.value() == ENOMEM);
    CHECK(std::string{failure.call} == verbs_faults::failed_call());
    CHECK(verbs_faults::to_string(verbs_faults::live_objects()) ==
          verbs_faults::to_string(nothing_live));
  }
  verbs_faults::fail_call(0, 0);
  set_up();
  CHECK(verbs_faults::live_objects() == nothing_live);
}

TEST_CASE("a call that may lack locked memory names the limit", "[verbs][device][M5]") {
  loopback l;
  const struct {
    const char* call;
    void (*make)(loopback&);
  } cases[] = {
      {"ibv_reg_mr",
       [](loopback& on) { memory_region(on.pd, on.bytes.data(), 64, verbs::access::local_write); }},
      {"ibv_create_cq", [](loopback& on) { completion_queue(on.ctx, 16); }},
      {"ibv_create_qp", [](loopback& on) { queue_pair(on.pd, on.cq, on.cq, {}); }},
  };
  for (const auto& c : cases) {
    verbs_faults::fail_call(1, ENOMEM);
    const auto text = failure_of([&] { c.make(l); }).to_string();
    CHECK_THAT(text, Contains(c.call) && Contains("RLIMIT_MEMLOCK is"));
  }
  verbs_faults::fail_call(0, 0);
}

TEST_CASE("registering more than the memlock limit fails with the limit and the way out",
          "[verbs][device][M5]") {
  const auto registering_64_mib = [] {
    // Opened in the child: a device opened before fork counts its parent's locked memory.
    context ctx{device_name()};
    protection_domain pd{ctx};
    std::vector<std::byte> bytes(64u << 20);
    try {
      memory_region mr{pd, bytes.data(), bytes.size(), verbs::access::local_write};
    } catch (const cordma::error& e) {
      return std::string{e.what()};
    }
    return std::string{"registered"};
  };
  CHECK_THAT(in_child_with_memlock(1u << 20, registering_64_mib),
             Contains("65536 KiB: RLIMIT_MEMLOCK is 1024 KiB; raise it (ulimit -l unlimited)"));
  CHECK_THAT(in_child_with_memlock(0, registering_64_mib), Contains("RLIMIT_MEMLOCK is 0 KiB"));
}
