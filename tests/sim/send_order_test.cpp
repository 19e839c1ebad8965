#include "faulty_device.hpp"
#include "raw_side.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

using namespace cordma;
using namespace std::chrono_literals;
using Catch::Contains;
using test::device_fault;
using test::faulty_device;
using test::raw_side;
using test::raw_world;

namespace {

void post_message(raw_side& own, std::uint64_t id, bool is_signaled = true) {
  ibv_send_wr wr = test::request(IBV_WR_SEND);
  wr.wr_id = id;
  if (!is_signaled) wr.send_flags = 0;
  own.send(wr, {own.piece(id * 64, 8)});
}

/// Completes so many signaled messages.
task<> send_messages(raw_side& own, unsigned count) {
  for (unsigned id = 1; id <= count; ++id) post_message(own, id);
  for (unsigned n = 0; n < count; ++n) static_cast<void>(co_await own.completion());
}

task<> take_messages(raw_side& own, unsigned count) {
  for (unsigned n = 1; n <= count; ++n) own.receive(n, {own.piece(n * 64, 64)});
  for (unsigned n = 0; n < count; ++n) static_cast<void>(co_await own.completion());
}

/// Returns what is found if the sender of two messages has this device.
std::string found_by_sender(std::function<void(ibv_wc& wc)> change) {
  const device_fault wrong{std::move(change)};
  raw_world both;
  return both.play([](raw_side& own, raw_side&) { return send_messages(own, 2); },
                   [](raw_side& own, raw_side&) { return take_messages(own, 2); },
                   &faulty_device::make);
}

/// Posts messages for which there is no receive, the second of them unsignaled, and flushes them.
task<> flush_three(raw_side& own) {
  for (std::uint64_t id = 1; id <= 3; ++id) post_message(own, id, id != 2);
  own.end_qp(IBV_QPS_ERR);
  for (unsigned n = 0; n < 3; ++n) static_cast<void>(co_await own.ended());
}

/// Returns what is found of a flush by this device.
std::string found_in_flush(std::function<void(ibv_wc& wc)> change) {
  const device_fault wrong{std::move(change)};
  raw_world both;
  return both.play([](raw_side& own, raw_side&) { return flush_three(own); },
                   [](raw_side&, raw_side&) -> task<> { co_await sleep_for(1ms); },
                   &faulty_device::make);
}

}  // namespace

TEST_CASE("a device that ends a send twice is found", "[sim]") {
  CHECK_THAT(found_by_sender([](ibv_wc& wc) {
               if (wc.wr_id == 1) faulty_device::here().again = wc;
             }),
             Catch::StartsWith("host a, qp ") &&
                 Contains("a send ends that nobody posted, or it ends twice"));
}

TEST_CASE("a device that ends a send that nobody posted is found", "[sim]") {
  CHECK_THAT(found_by_sender([](ibv_wc& wc) { wc.wr_id = 77; }),
             Contains("a send ends that nobody posted, or it ends twice"));
}

TEST_CASE("a flush in the order of posting is none of the device's faults", "[sim]") {
  CHECK(found_in_flush({}) == "");
}

TEST_CASE("a flush in another order is found", "[sim]") {
  CHECK_THAT(found_in_flush([](ibv_wc& wc) { wc.wr_id = wc.wr_id == 1 ? 1 : 5 - wc.wr_id; }),
             Contains("a request ends before one that was posted earlier"));
  CHECK_THAT(found_in_flush([](ibv_wc& wc) { wc.wr_id = 4 - wc.wr_id; }),
             Contains("a request ends before a signaled one that was posted earlier"));
}

TEST_CASE("a flush that leaves an unsignaled request out is found", "[sim]") {
  CHECK_THAT(found_in_flush([](ibv_wc& wc) { wc.wr_id += wc.wr_id == 2 ? 1 : 0; }),
             Contains("a request ends before one that was posted earlier"));
}

TEST_CASE("a flushed request that ends twice, or that nobody posted, is found", "[sim]") {
  CHECK_THAT(found_in_flush([](ibv_wc& wc) {
               if (wc.wr_id == 2) wc.wr_id = 1;
             }),
             Contains("a request ends that nobody posted, or it ends twice"));
}

TEST_CASE("a request that succeeds behind one that failed is found", "[sim]") {
  CHECK_THAT(found_in_flush([](ibv_wc& wc) {
               if (wc.wr_id == 3) wc.status = IBV_WC_SUCCESS;
             }),
             Contains("a request succeeds behind one that failed"));
}

TEST_CASE("unsignaled requests of one id may be flushed, whichever of them had succeeded",
          "[sim]") {
  for (std::uint64_t seed = 1; seed <= 64; ++seed) {
    raw_world both{seed};
    unsigned flushed = 0;
    CHECK(both.play(
              [&](raw_side& own, raw_side&) -> task<> {
                for (unsigned n = 0; n < 6; ++n) post_message(own, 5, false);
                post_message(own, 6);
                post_message(own, 5, false);
                co_await sleep_for(std::chrono::microseconds{seed});
                own.end_qp(IBV_QPS_ERR);
                for (ibv_wc wc{}; wc.wr_id != 6; ++flushed) wc = co_await own.ended();
                static_cast<void>(co_await own.ended());
              },
              [](raw_side& own, raw_side&) -> task<> {
                for (unsigned n = 1; n <= 3; ++n) own.receive(n, {own.piece(n * 64, 64)});
                co_await sleep_for(10ms);
              }) == "");
    CHECK(flushed >= 1);
  }
}

TEST_CASE("a receive that fails is not taken for a later send of its id", "[sim]") {
  raw_world both;
  std::string ids;
  CHECK(both.play(
            [&](raw_side& own, raw_side&) -> task<> {
              own.receive(3, {own.piece(512, 4)});  // Too short for the message.
              for (std::uint64_t id = 1; id <= 3; ++id) post_message(own, id);
              for (unsigned n = 0; n < 4; ++n) {
                const ibv_wc wc = co_await own.ended();
                ids += std::to_string(wc.wr_id);
              }
            },
            [](raw_side& own, raw_side&) -> task<> {
              co_await sleep_for(1ms);
              post_message(own, 1);
              static_cast<void>(co_await own.ended());
            }) == "");
  CHECK(ids == "3123");
}

TEST_CASE("sends of a queue pair that is destroyed end once, in their order, or not at all",
          "[sim]") {
  const auto found_with = [](std::function<void(ibv_wc & wc)> change, unsigned polled) {
    const device_fault wrong{std::move(change)};
    raw_world both;
    bool has_arrived = false;
    return both.play(
        [&, polled](raw_side& own, raw_side&) -> task<> {
          for (std::uint64_t id = 1; id <= 2; ++id) post_message(own, id);
          while (!has_arrived) co_await sleep_for(1ms);
          co_await sleep_for(10ms);
          ::ibv_destroy_qp(own.qp);
          for (unsigned n = 0; n < polled; ++n) static_cast<void>(co_await own.completion());
          own.make_qp();
        },
        [&](raw_side& own, raw_side&) -> task<> {
          co_await take_messages(own, 2);
          has_arrived = true;
        },
        &faulty_device::make);
  };
  CHECK(found_with({}, 2) == "");
  CHECK(found_with({}, 0) == "");
  CHECK_THAT(found_with([](ibv_wc& wc) { wc.wr_id = 2; }, 2),
             Contains("a request ends before a signaled one that was posted earlier"));
  CHECK_THAT(found_with([](ibv_wc& wc) { faulty_device::here().again = wc; }, 2),
             Contains("a send ends that nobody posted, or it ends twice"));
}

TEST_CASE("a queue pair that was in RESET has no requests of before", "[sim]") {
  raw_world both;
  unsigned reset = 0, connected = 0;
  const auto again = [&](raw_side& own, raw_side& other) -> task<> {
    own.end_qp(IBV_QPS_RESET);
    own.to_init();
    ++reset;
    while (reset < 2) co_await sleep_for(1ms);
    own.connect(other.gid, other.qp->qp_num);
    ++connected;
    while (connected < 2) co_await sleep_for(1ms);
  };
  CHECK(both.play(
            [&](raw_side& own, raw_side& other) -> task<> {
              for (std::uint64_t id = 7; id <= 9; ++id) post_message(own, id);
              own.end_qp(IBV_QPS_ERR);
              static_cast<void>(co_await own.ended());
              co_await again(own, other);
              co_await send_messages(own, 2);
            },
            [&](raw_side& own, raw_side& other) -> task<> {
              own.receive(9, {own.piece(0, 8)});
              co_await sleep_for(1ms);
              co_await again(own, other);
              co_await take_messages(own, 2);
            }) == "");
}
