#include "c/foreign_calls.hpp"

#include "c/c_pair.hpp"

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

using namespace cordma::test;

TEST_CASE("many threads call one context with a thread of its own", "[c][device]") {
  const c_pair both{on_device(CORDMA_THREAD)};
  const c_memory theirs{both.server.context, 64, CORDMA_REMOTE_ATOMIC};
  cordma_remote remote = both.named(theirs);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i)
        failures += cordma_fetch_add(both.here, remote, 0, 1, nullptr, long_us) != CORDMA_OK;
    });
  for (auto& one : threads) one.join();
  CHECK(failures == 0);
  std::uint64_t before = 0;
  CHECK_OK(cordma_fetch_add(both.here, remote, 0, 0, &before, long_us));
  CHECK(before == 400);
}

namespace {

/// A call that notes that it has run.
struct noted_call final : cordma::c::foreign_calls::call {
  void run() noexcept override {
    ++runs;
    end();
  }
  int runs = 0;
};

/// A callback that holds its thread up.
struct held_callback {
  std::promise<void> begun, released;
  static void run(cordma_connection, const void*, const cordma_message*, void* user) {
    auto& self = *static_cast<held_callback*>(user);
    self.begun.set_value();
    self.released.get_future().wait();
  }
};

}  // namespace

TEST_CASE("a call is taken back until it has begun, wherever it waits", "[c]") {
  cordma::executor executor;
  cordma::c::foreign_calls calls;
  calls.open(executor);
  const std::size_t taken = GENERATE(0u, 1u, 2u);
  std::array<noted_call, 4> all;
  for (std::size_t n = 0; n < 3; ++n) REQUIRE(calls.submit(all[n]));
  CHECK(calls.take_back(all[taken]));
  CHECK_FALSE(calls.take_back(all[taken]));
  REQUIRE(calls.submit(all[3]));
  CHECK(calls.poll() == 3);
  for (std::size_t n = 0; n < all.size(); ++n) {
    CHECK(all[n].runs == (n == taken ? 0 : 1));
    CHECK(all[n].wait_until(cordma::time_point{}) == (n != taken));
    CHECK_FALSE(calls.take_back(all[n]));
  }
  calls.close();
}

TEST_CASE("a poll runs some of many calls, and a close all", "[c]") {
  cordma::executor executor;
  cordma::c::foreign_calls calls;
  calls.open(executor);
  std::array<noted_call, 200> all;
  for (noted_call& one : all) REQUIRE(calls.submit(one));
  CHECK(calls.poll() == 64);
  CHECK(all[63].runs == 1);
  CHECK(all[64].runs == 0);
  calls.close();
  for (const noted_call& one : all) CHECK(one.runs == 1);
}

TEST_CASE("a call that a callback keeps from beginning ends at its deadline, and does nothing",
          "[c][device]") {
  held_callback held;
  const c_pair both;
  const c_context other;
  cordma_connection of_other = nullptr;
  CHECK_OK(cordma_connect(other, both.server.address.c_str(), long_us, &of_other));
  CHECK_OK(cordma_set_receive_callback(both.there, &held_callback::run, nullptr, &held));
  const c_memory memory{both.client, 8};
  CHECK_OK(cordma_send(both.here, memory, 0, 8, long_us));
  held.begun.get_future().wait();
  cordma_connection made = nullptr;
  const int late = cordma_accept(both.server.listener, 10'000, &made);
  CHECK_THAT(cordma_error_text(), Catch::Contains("a callback"));
  std::atomic<int> told{0};
  cordma_work work{};
  const int late_post = cordma_post(
      both.there, &work, 10'000,
      [](cordma_connection, int, std::uint64_t, void* user) {
        ++*static_cast<std::atomic<int>*>(user);
      },
      &told);
  const int late_connect = cordma_start_connect(
      both.server.context, both.server.address.c_str(), 10'000,
      [](cordma_connection, int, void* user) { ++*static_cast<std::atomic<int>*>(user); }, &told);
  held.released.set_value();
  CHECK(late == CORDMA_TIMED_OUT);
  CHECK(made == nullptr);
  CHECK(late_post == CORDMA_TIMED_OUT);
  CHECK(late_connect == CORDMA_TIMED_OUT);
  CHECK(told == 0);
  CHECK(both.server.accept() != nullptr);  // The client was not lost with the late call.
}

TEST_CASE("a connection that one thread closes while others call is a bad handle to them",
          "[c][device]") {
  const c_pair both{on_device(CORDMA_THREAD)};
  const c_memory memory{both.client, 8};
  for (int round = 0; round < 20; ++round) {
    cordma_connection here = nullptr;
    CHECK_OK(cordma_connect(both.client, both.server.address.c_str(), long_us, &here));
    const cordma_connection there = both.server.accept();
    std::array<int, 3> statuses{};
    std::vector<std::thread> threads;
    for (int& status : statuses)
      threads.emplace_back([&] {
        std::array<char, 8> text{};
        while (status == CORDMA_OK) {
          status = cordma_send(here, memory, 0, 8, long_us);
          static_cast<void>(cordma_receive(there, text.data(), text.size(), nullptr, 0));
        }
      });
    const int closed = cordma_disconnect(here, long_us);
    for (auto& one : threads) one.join();
    CHECK(closed == CORDMA_OK);
    for (const int status : statuses)
      CHECK((status == CORDMA_BAD_HANDLE || status == CORDMA_DISCONNECTED));
    CHECK_OK(cordma_disconnect(there, long_us));
  }
}

TEST_CASE("a release ends what other threads wait for", "[c][device]") {
  c_pair both{on_device(CORDMA_THREAD)};
  std::array<int, 3> statuses{};
  std::array<std::atomic<bool>, 3> begun{};
  cordma_listener listener = nullptr;
  CHECK_OK(cordma_listen(both.client, nullptr, &listener));
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    begun[0] = true;
    char text = 0;
    statuses[0] = cordma_receive(both.here, &text, 1, nullptr, CORDMA_FOREVER);
  });
  threads.emplace_back([&] {
    cordma_connection made = nullptr;
    begun[1] = true;
    statuses[1] = cordma_accept(listener, CORDMA_FOREVER, &made);
  });
  threads.emplace_back([&] {
    begun[2] = true;
    cordma_remote made = nullptr;
    statuses[2] = cordma_request(both.here, 1 << 20, 1'000'000, CORDMA_FOREVER, &made);
  });
  for (const auto& one : begun)
    while (!one) std::this_thread::yield();
  CHECK_OK(both.client.release());
  for (auto& one : threads) one.join();
  // A thread that comes after the release has no handle.
  for (const int status : statuses) CHECK(status != CORDMA_OK);
}

TEST_CASE("a connect that ends while a release says goodbye is cancelled", "[c][device]") {
  const c_server other;
  c_context client;
  std::promise<std::string> address;
  std::promise<void> connected;
  // A peer that answers no goodbye before the connect has ended.
  std::thread peer{[&, options = on_device()] {
    cordma_context own = nullptr;
    cordma_listener listener = nullptr;
    cordma_connection made = nullptr;
    std::array<char, 64> text{};
    cordma_init(&options, &own);
    cordma_listen(own, nullptr, &listener);
    cordma_address(listener, text.data(), text.size());
    address.set_value(text.data());
    cordma_accept(listener, long_us, &made);
    connected.get_future().wait();
    cordma_release(own, long_us);
  }};
  cordma_connection here = nullptr;
  const int first = cordma_connect(client, address.get_future().get().c_str(), long_us, &here);
  struct outcome {
    std::promise<void>& connected;
    int status = -1;
    cordma_connection made = nullptr;
  } told{connected};
  const int begun = cordma_start_connect(
      client, other.address.c_str(), long_us,
      [](cordma_connection made, int status, void* user) {
        auto& it = *static_cast<outcome*>(user);
        it.status = status;
        it.made = made;
        it.connected.set_value();
      },
      &told);
  const int released = client.release();
  peer.join();
  CHECK(first == CORDMA_OK);
  CHECK(begun == CORDMA_OK);
  CHECK(released == CORDMA_OK);
  CHECK(told.status == CORDMA_CANCELLED);
  CHECK(told.made == nullptr);
}

TEST_CASE("two threads release one context: one of them does", "[c][device]") {
  cordma_context context = nullptr;
  const cordma_options options = on_device(CORDMA_THREAD);
  CHECK_OK(cordma_init(&options, &context));
  std::array<int, 2> statuses{};
  std::vector<std::thread> threads;
  for (int& status : statuses)
    threads.emplace_back([&] { status = cordma_release(context, long_us); });
  for (auto& one : threads) one.join();
  CHECK(std::min(statuses[0], statuses[1]) == CORDMA_OK);
  CHECK(std::max(statuses[0], statuses[1]) == CORDMA_BAD_HANDLE);
}

TEST_CASE("a context of another thread that has ended belongs to nobody", "[c][device]") {
  cordma_context context = nullptr;
  const cordma_options options = on_device();
  std::thread{[&] { static_cast<void>(cordma_init(&options, &context)); }}.join();
  REQUIRE(context != nullptr);
  cordma_listener listener = nullptr;
  CHECK(cordma_listen(context, nullptr, &listener) == CORDMA_WRONG_THREAD);
  std::thread{[&] {
    CHECK(cordma_listen(context, nullptr, &listener) == CORDMA_WRONG_THREAD);
  }}.join();
}

TEST_CASE("each thread has its own last failure", "[c]") {
  CHECK(cordma_dispatch(nullptr) == CORDMA_BAD_HANDLE);
  std::thread{[] {
    CHECK(cordma_error_code() == CORDMA_OK);
    CHECK(std::string(cordma_error_text()).empty());
    CHECK(cordma_init(nullptr, nullptr) == CORDMA_BAD_ARGUMENT);
  }}.join();
  CHECK(cordma_error_code() == CORDMA_BAD_HANDLE);
}
