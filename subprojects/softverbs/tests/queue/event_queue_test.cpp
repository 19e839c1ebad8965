#include "queue/event_queue.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <thread>

namespace {

using softverbs::async_event_queue;

/// Events name objects by address; the queue never looks into them.
ibv_qp* qp_at(std::uintptr_t address) { return reinterpret_cast<ibv_qp*>(address); }

ibv_async_event about(ibv_qp* qp, ibv_event_type type = IBV_EVENT_COMM_EST) {
  ibv_async_event event{};
  event.element.qp = qp;
  event.event_type = type;
  return event;
}

ibv_async_event about_port() {
  ibv_async_event event{};
  event.element.port_num = 1;
  event.event_type = IBV_EVENT_PORT_ERR;
  return event;
}

bool readable(const async_event_queue& queue) {
  pollfd ready{.fd = queue.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&ready, 1, 0) == 1;
}

void never_block(const async_event_queue& queue) {
  REQUIRE(::fcntl(queue.fd(), F_SETFL, O_NONBLOCK) == 0);
}

}  // namespace

TEST_CASE("events come out in the order in which they went in", "[queue]") {
  async_event_queue queue;
  queue.push(about(qp_at(16)));
  queue.push(about_port());
  queue.push(about(qp_at(32), IBV_EVENT_QP_FATAL));

  ibv_async_event event{};
  REQUIRE(queue.pop(event) == 0);
  CHECK(event.element.qp == qp_at(16));
  REQUIRE(queue.pop(event) == 0);
  CHECK(event.event_type == IBV_EVENT_PORT_ERR);
  CHECK(event.element.port_num == 1);
  REQUIRE(queue.pop(event) == 0);
  CHECK(event.element.qp == qp_at(32));
  CHECK(event.event_type == IBV_EVENT_QP_FATAL);
}

TEST_CASE("the descriptor is readable exactly while there are events", "[queue]") {
  async_event_queue queue;
  CHECK_FALSE(readable(queue));
  queue.push(about_port());
  queue.push(about_port());
  ibv_async_event event{};
  CHECK(readable(queue));
  REQUIRE(queue.pop(event) == 0);
  CHECK(readable(queue));
  REQUIRE(queue.pop(event) == 0);
  CHECK_FALSE(readable(queue));
}

TEST_CASE("an empty queue answers EAGAIN when its descriptor does not block", "[queue]") {
  async_event_queue queue;
  never_block(queue);
  ibv_async_event event{};
  errno = 0;
  CHECK(queue.pop(event) == -1);
  CHECK(errno == EAGAIN);
}

TEST_CASE("a blocked reader gets the event that comes", "[queue]") {
  async_event_queue queue;
  ibv_async_event event{};
  int result = -1;
  std::thread reader{[&] { result = queue.pop(event); }};
  queue.push(about(qp_at(48)));
  reader.join();
  CHECK(result == 0);
  CHECK(event.element.qp == qp_at(48));
}

TEST_CASE("a blocked reader goes on after a signal whose handler restarts calls", "[queue]") {
  struct sigaction restarting{};
  struct sigaction before{};
  restarting.sa_handler = [](int) {};
  restarting.sa_flags = SA_RESTART;
  REQUIRE(::sigaction(SIGUSR1, &restarting, &before) == 0);
  async_event_queue queue;
  ibv_async_event event{};
  int result = -1;
  std::thread reader{[&] { result = queue.pop(event); }};
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(::pthread_kill(reader.native_handle(), SIGUSR1) == 0);
    std::this_thread::yield();
  }
  queue.push(about(qp_at(48)));
  reader.join();
  CHECK(result == 0);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("forgetting an object drops its events and counts those already read", "[queue]") {
  async_event_queue queue;
  never_block(queue);
  queue.push(about(qp_at(16)));
  queue.push(about(qp_at(32)));
  queue.push(about(qp_at(16), IBV_EVENT_SQ_DRAINED));
  queue.push(about(qp_at(16), IBV_EVENT_QP_FATAL));
  ibv_async_event event{};
  REQUIRE(queue.pop(event) == 0);

  CHECK(queue.forget(qp_at(16)) == 1);
  REQUIRE(queue.pop(event) == 0);
  CHECK(event.element.qp == qp_at(32));
  CHECK_FALSE(readable(queue));
  CHECK(queue.pop(event) == -1);

  CHECK(queue.forget(qp_at(32)) == 1);
  CHECK(queue.forget(qp_at(64)) == 0);
}

TEST_CASE("an object at a forgotten address starts without a history", "[queue]") {
  async_event_queue queue;
  ibv_async_event event{};
  queue.push(about(qp_at(16)));
  REQUIRE(queue.pop(event) == 0);
  REQUIRE(queue.forget(qp_at(16)) == 1);
  queue.push(about(qp_at(16)));
  CHECK(queue.forget(qp_at(16)) == 0);
}

TEST_CASE("several readers share the events, and forgetting meanwhile loses none of others",
          "[queue]") {
  constexpr int rounds = 2000;
  async_event_queue queue;
  std::atomic<int> taken{0};
  const auto reader = [&] {
    for (ibv_async_event event{}; queue.pop(event) == 0;) {
      if (event.event_type == IBV_EVENT_DEVICE_FATAL) return;  // The end, one for each reader.
      if (event.element.qp == qp_at(32)) ++taken;
    }
  };
  std::thread first{reader};
  std::thread second{reader};
  for (int i = 0; i < rounds; ++i) {
    queue.push(about(qp_at(16)));
    queue.push(about(qp_at(32)));
    queue.forget(qp_at(16));
  }
  ibv_async_event end{};
  end.event_type = IBV_EVENT_DEVICE_FATAL;
  queue.push(end);
  queue.push(end);
  first.join();
  second.join();
  CHECK(taken == rounds);
  CHECK_FALSE(readable(queue));
}
