#include "faulty_device.hpp"
#include "raw_side.hpp"

#include <catch2/catch.hpp>

#include <functional>
#include <string>

using namespace cordma;
using namespace std::chrono_literals;
using Catch::Contains;
using test::device_fault;
using test::faulty_device;
using test::raw_side;
using test::raw_world;

namespace {

/// Sends these messages, each a request of the next id, and waits for the completions.
task<> send_all(raw_side& own, unsigned count, std::size_t bytes = 8) {
  for (unsigned n = 1; n <= count; ++n) {
    ibv_send_wr wr = test::request(IBV_WR_SEND);
    wr.wr_id = n;
    own.send(wr, {own.piece(n * 64, bytes)});
  }
  for (unsigned n = 0; n < count; ++n) static_cast<void>(co_await own.completion());
}

task<> receive_all(raw_side& own, unsigned count) {
  for (unsigned n = 1; n <= count; ++n) own.receive(n, {own.piece(n * 64, 64)});
  for (unsigned n = 0; n < count; ++n) static_cast<void>(co_await own.completion());
}

/// Returns what is found of two messages whose receiver's device has this fault.
std::string found_by_receiver(std::function<void(ibv_wc& wc)> change) {
  const device_fault wrong{std::move(change)};
  raw_world both;
  return both.play([](raw_side& own, raw_side&) { return send_all(own, 2); },
                   [](raw_side& own, raw_side&) { return receive_all(own, 2); }, nullptr,
                   &faulty_device::make);
}

}  // namespace

TEST_CASE("nothing is found of sends, reads and receives as they should be", "[sim]") {
  for (std::uint64_t seed = 1; seed <= 32; ++seed) {
    raw_world both{seed};
    CHECK(both.play(
              [](raw_side& own, raw_side& other) -> task<> {
                for (std::size_t n = 0; n < own.memory.size(); ++n) own.memory[n] = std::byte(n);
                co_await send_all(own, 3, 50);
                own.send(test::request(IBV_WR_RDMA_READ, &other, 64), {own.piece(1000, 50)});
                static_cast<void>(co_await own.completion());
              },
              [](raw_side& own, raw_side&) { return receive_all(own, 3); }) == "");
  }
}

TEST_CASE(
    "more messages under way than their queue pair has receives are found, however soon more "
    "come",
    "[sim]") {
  const auto found_with = [](unsigned messages, bool forbids) {
    raw_world both;
    bool is_ready = false;
    if (forbids) both.world.forbid_receiver_not_ready();
    return both.play(
        [&, messages](raw_side& own, raw_side&) -> task<> {
          while (!is_ready) co_await sleep_for(1ms);
          for (unsigned n = 0; n < messages; ++n)
            own.send(test::request(IBV_WR_SEND), {own.piece(0, 8)});
          for (unsigned n = 0; n < messages; ++n) static_cast<void>(co_await own.completion());
        },
        [&, messages](raw_side& own, raw_side&) -> task<> {
          own.receive(1, {own.piece(64, 8)});
          own.receive(1, {own.piece(64, 8)});
          is_ready = true;
          for (unsigned n = 0; n < messages; ++n) {
            static_cast<void>(co_await own.completion());
            own.receive(1, {own.piece(64, 8)});
          }
        });
  };
  CHECK(found_with(2, true) == "");
  CHECK(found_with(3, false) == "");
  CHECK_THAT(found_with(3, true),
             Contains("3 messages are under way to a queue pair with 2 receives"));
}

TEST_CASE("a program that changes the memory of a send before it has ended is found", "[sim]") {
  raw_world both;
  bool has_arrived = false;
  const std::string found = both.play(
      [&](raw_side& own, raw_side&) -> task<> {
        own.send(test::request(IBV_WR_SEND), {own.piece(0, 8)});
        while (!has_arrived) co_await sleep_for(1ms);
        own.memory[7] = std::byte{1};
        static_cast<void>(co_await own.completion());
      },
      [&](raw_side& own, raw_side&) -> task<> {
        co_await receive_all(own, 1);
        has_arrived = true;
      });
  CHECK_THAT(found, Catch::StartsWith("host a, qp ") &&
                        Contains("the memory of a request has changed before it ended"));
}

TEST_CASE("a message that arrives with other bytes than were sent is found", "[sim]") {
  raw_side* receiver = nullptr;
  const device_fault wrong{[&](ibv_wc&) { receiver->memory[64 + 7] = std::byte{1}; }};
  raw_world both;
  const std::string found = both.play([](raw_side& own, raw_side&) { return send_all(own, 1); },
                                      [&](raw_side& own, raw_side&) {
                                        receiver = &own;
                                        return receive_all(own, 1);
                                      },
                                      nullptr, &faulty_device::make);
  CHECK_THAT(found, Catch::StartsWith("host b, qp ") &&
                        Contains("a message arrives with other bytes than were sent"));
}

TEST_CASE("memory of an inline send is the program's again after the call", "[sim]") {
  raw_world both;
  CHECK(both.play(
            [](raw_side& own, raw_side&) -> task<> {
              ibv_send_wr wr = test::request(IBV_WR_SEND);
              wr.send_flags |= IBV_SEND_INLINE;
              own.send(wr, {own.piece(0, 8)});
              own.memory[0] = std::byte{1};
              static_cast<void>(co_await own.completion());
            },
            [](raw_side& own, raw_side&) { return receive_all(own, 1); }) == "");
}

TEST_CASE("bytes in the middle of a long message are looked at in one seed of sixteen", "[sim]") {
  const auto found_with = [](std::uint64_t seed, std::size_t changed) {
    raw_world both{seed};
    bool has_arrived = false;
    return both.play(
        [&](raw_side& own, raw_side&) -> task<> {
          own.send(test::request(IBV_WR_SEND), {own.piece(0, 1000), own.piece(1000, 1000)});
          while (!has_arrived) co_await sleep_for(1ms);
          own.memory[changed] = std::byte{1};
          static_cast<void>(co_await own.completion());
        },
        [&](raw_side& own, raw_side&) -> task<> {
          own.receive(1, {own.piece(0, 500), own.piece(1000, 2000)});
          static_cast<void>(co_await own.completion());
          has_arrived = true;
        });
  };
  for (const std::size_t at : {0u, 63u, 1936u, 1999u})
    CHECK_THAT(found_with(1, at), Contains("has changed before it ended"));
  CHECK(found_with(1, 64) == "");
  CHECK(found_with(1, 1935) == "");
  for (const std::size_t at : {64u, 1000u, 1935u})
    CHECK_THAT(found_with(16, at), Contains("has changed before it ended"));
}

TEST_CASE("a device that ends a receive twice is found", "[sim]") {
  CHECK_THAT(found_by_receiver([](ibv_wc& wc) {
               if (wc.wr_id == 1) faulty_device::here().again = wc;
             }),
             Catch::StartsWith("host b, qp ") &&
                 Contains("a receive ends that nobody posted, or it ends twice"));
}

TEST_CASE("a device that ends receives in another order is found", "[sim]") {
  CHECK_THAT(found_by_receiver([](ibv_wc& wc) { wc.wr_id = 2; }),
             Catch::StartsWith("host b, qp ") &&
                 Contains("a receive ends before one that was posted earlier"));
}

TEST_CASE("a device that gives a message another length is found", "[sim]") {
  CHECK_THAT(found_by_receiver([](ibv_wc& wc) { --wc.byte_len; }),
             Catch::StartsWith("host b, qp ") && Contains("a message of 8 bytes arrives as 7"));
}

TEST_CASE("a device that ends a receive without a message is found", "[sim]") {
  const device_fault wrong{[](ibv_wc& wc) {
    faulty_device::here().again = wc;
    faulty_device::here().again.wr_id = 2;
  }};
  raw_world both;
  const std::string found = both.play([](raw_side& own, raw_side&) { return send_all(own, 1); },
                                      [](raw_side& own, raw_side&) { return receive_all(own, 2); },
                                      nullptr, &faulty_device::make);
  CHECK_THAT(found,
             Catch::StartsWith("host b, qp ") && Contains("a message arrives that was not sent"));
}

TEST_CASE("a device that ends a send before one that was posted earlier is found", "[sim]") {
  const device_fault wrong{[](ibv_wc& wc) { wc.wr_id = 2; }};
  raw_world both;
  const std::string found =
      both.play([](raw_side& own, raw_side&) { return send_all(own, 2); },
                [](raw_side& own, raw_side&) { return receive_all(own, 2); }, &faulty_device::make);
  CHECK_THAT(found, Catch::StartsWith("host a, qp ") &&
                        Contains("a request ends before a signaled one that was posted earlier"));
}

TEST_CASE("requests that a device did not take are forgotten", "[sim]") {
  raw_world both;
  unsigned taken = 0;
  const std::string found = both.play(
      [&](raw_side& own, raw_side&) -> task<> {
        // The send queue has room for a few.
        for (bool is_full = false; !is_full; taken += is_full ? 0 : 1) {
          try {
            own.send(test::request(IBV_WR_SEND), {own.piece(taken * 8, 8)});
          } catch (const std::runtime_error&) {
            is_full = true;
          }
        }
        own.memory[taken * 8] = std::byte{1};
        for (unsigned n = 0; n < taken; ++n) static_cast<void>(co_await own.completion());
        co_await send_all(own, 1);
      },
      [&](raw_side& own, raw_side&) -> task<> {
        co_await sleep_for(1ms);
        for (unsigned n = 0; n <= taken; ++n) {
          own.receive(n + 1, {own.piece(0, 8)});
          static_cast<void>(co_await own.completion());
        }
      });
  CHECK(found == "");
  CHECK(taken >= 16);
}

TEST_CASE("a receive that its queue pair completed ends after the queue pair is destroyed",
          "[sim]") {
  raw_world both;
  bool has_ended = false;
  const std::string found = both.play(
      [&](raw_side& own, raw_side&) -> task<> {
        co_await send_all(own, 1);
        has_ended = true;
      },
      [&](raw_side& own, raw_side&) -> task<> {
        own.receive(1, {own.piece(64, 64)});
        while (!has_ended) co_await sleep_for(1ms);
        ::ibv_destroy_qp(own.qp);
        const ibv_wc wc = co_await own.completion();
        CHECK(wc.wr_id == 1);
        own.make_qp();
      });
  CHECK(found == "");
}

TEST_CASE("a shared receive ends, and its id is free, after its queue pair is destroyed", "[sim]") {
  constexpr unsigned rounds = 2;
  raw_world both;
  unsigned made_by_a = 0, ready = 0, ended = 0;
  const auto reached = [](const unsigned& count, unsigned round) -> task<> {
    while (count <= round) co_await sleep_for(1ms);
  };
  const std::string found = both.play(
      [&](raw_side& own, raw_side& other) -> task<> {
        for (unsigned n = 0; n < rounds; ++n) {
          ::ibv_destroy_qp(own.qp);
          own.make_qp();
          made_by_a = n + 1;
          co_await reached(ready, n);
          own.connect(other.gid, other.qp->qp_num);
          own.memory[64] = std::byte(n);
          co_await send_all(own, 1);
          ended = n + 1;
        }
      },
      [&](raw_side& own, raw_side& other) -> task<> {
        ibv_srq_init_attr how{.srq_context = nullptr,
                              .attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0}};
        ibv_srq* const srq = ::ibv_create_srq(own.pd, &how);
        for (unsigned n = 0; n < rounds; ++n) {
          ::ibv_destroy_qp(own.qp);
          own.make_qp(srq);
          ibv_sge memory = own.piece(n * 64, 64);
          ibv_recv_wr wr{.wr_id = 1, .next = nullptr, .sg_list = &memory, .num_sge = 1};
          ibv_recv_wr* bad = nullptr;
          CHECK(::ibv_post_srq_recv(srq, &wr, &bad) == 0);
          co_await reached(made_by_a, n);
          own.connect(other.gid, other.qp->qp_num);
          ready = n + 1;
          co_await reached(ended, n);
          ::ibv_destroy_qp(own.qp);
          static_cast<void>(co_await own.completion());
          own.make_qp();
        }
        ::ibv_destroy_srq(srq);
      });
  CHECK(found == "");
}
