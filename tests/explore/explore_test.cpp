#include "explorer.hpp"

#include "support/device.hpp"
#include "support/loopback.hpp"
#include "support/raw_verbs.hpp"
#include "wire/step.hpp"

#include <cordma/base/unique_fd.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/detail/base/step.hpp>

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <catch2/catch.hpp>

#include <array>
#include <cstdlib>
#include <iostream>
#include <optional>

// An executor runs with its completion queue driver and two other threads. One thread completes
// receives of the executor's queue pair, and one posts calls. The explorer tries every order with
// at most a given number of deviations.

namespace cordma {

void explorer::at_step() noexcept { softverbs::explorer::at_step(); }

namespace {

using softverbs::explorer::outcome;
using softverbs::explorer::scenario;

/// Waits where the explorer sees it.
class explored_reactor final : public reactor {
 public:
  explored_reactor() { add(wake_.get(), nullptr, EPOLLIN | EPOLLET); }

  [[nodiscard]] const char* name() const noexcept override { return "explorer"; }
  void enable() override {}
  void watch(fd_watch& w) override {
    CORDMA_ASSERT(w.kind() == watch_kind::edges, "the scenarios watch nothing once");
    add(w.fd(), &w, EPOLLIN | EPOLLET);
  }
  void unwatch(fd_watch& w) noexcept override {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, w.fd(), nullptr);
  }
  void set_alarm(time_point) noexcept override {}
  void poll() noexcept override {
    epoll_event one{};
    while (::epoll_wait(epoll_.get(), &one, 1, 0) == 1)
      if (one.data.ptr != nullptr) static_cast<fd_watch*>(one.data.ptr)->fired();
  }
  void wait() noexcept override {
    softverbs::explorer::await_readable(epoll_.get());
    poll();
  }
  void wake() noexcept override {
    explorer::at_step();
    ::eventfd_write(wake_.get(), 1);
  }

 private:
  void add(int fd, void* data, std::uint32_t events) {
    epoll_event one{.events = events, .data = {.ptr = data}};
    REQUIRE(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &one) == 0);
  }
  unique_fd epoll_{::epoll_create1(EPOLL_CLOEXEC)};
  unique_fd wake_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
};

executor_options explored() {
  executor_options how;
  how.reactor = std::make_unique<explored_reactor>();
  return how;
}

/// A queue pair on the executor, and one that a thread uses by raw verbs. Each run has new ones, so
/// that nothing is armed or unread from the run before.
struct two_ends {
  explicit two_ends(verbs::context& on) : ctx{on} {
    const auto num = [](verbs::queue_pair& qp) { return qp.num(); };
    test::connect(ctx, port, ours.verbs(), num(theirs));
    test::connect(ctx, port, theirs, num(ours.verbs()));
  }
  /// \thread any one.
  void send() {
    std::array<ibv_wc, 1> ended{};
    static_cast<void>(sends.poll(ended));
    const local_mr_slice from = memory.slice(0, 8);
    support::raw::post(
        theirs, support::raw::request{IBV_WR_SEND,
                                      support::raw::piece(from.bytes().data(), 8, from.lkey())});
  }

  verbs::context& ctx;
  verbs::port_info port = ctx.active_port();
  cordma::executor executor{explored()};
  verbs::protection_domain pd{ctx};
  mr_allocator allocator{pd};
  local_mr memory = allocator.allocate_zeroed(4096);
  completion_queue_driver driver{executor, ctx};
  queue_pair ours{driver, pd, {}, port.message_max_bytes};
  verbs::completion_queue sends{ctx, 64};
  verbs::queue_pair theirs{pd, sends, sends, {}};
};

void check(const scenario& what, unsigned deviations) {
  softverbs::explorer::limits how;
  how.deviations = deviations;
  if (const char* set = std::getenv("CORDMA_EXPLORE_DEVIATIONS"))
    how.deviations = static_cast<unsigned>(std::stoul(set));
  const outcome all = softverbs::explorer::explore(what, how);
  std::cout << what.name << ": " << all.runs << " orders with at most " << how.deviations
            << " deviations, " << all.steps << " steps, at most " << all.longest << " in one, "
            << all.diverged << " not repeatable, " << all.stuck << " stuck\n";
  INFO(what.name << ":" << all.first_stuck);
  const bool has_fault = std::getenv("CORDMA_EXPLORE_FAULT") != nullptr;
  CHECK((all.stuck > 0) == has_fault);
  CHECK(all.diverged == 0);
}

task<> take(two_ends& both, int messages, event& called) {
  for (; messages > 0; --messages) static_cast<void>(co_await both.ours.next_message());
  co_await called.wait();
}

}  // namespace

TEST_CASE("an executor hears of completions and of calls in every order", "[explore][device]") {
  verbs::context ctx{test::device_name()};
  std::optional<two_ends> both{ctx};
  event called;
  scenario hears;
  hears.name = "completions and a call";
  hears.engines = 1;
  hears.before = [&] {
    called.reset();
    both.emplace(ctx);
    for (int n = 0; n < 2; ++n) both->ours.post_recv(both->memory.slice(8, 8));
  };
  hears.threads = {[&] { both->executor.run(take(*both, 2, called)); },
                   [&] {
                     both->send();
                     both->send();
                   },
                   [&] { both->executor.post([&called]() noexcept { called.set(); }); }};
  hears.rescue = [&] { both->executor.reactor().wake(); };
  check(hears, 1);
}

}  // namespace cordma
