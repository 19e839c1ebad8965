#include "process.hpp"
#include "rig.hpp"
#include "soak.hpp"
#include "stress.hpp"

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <functional>
#include <random>
#include <thread>
#include <vector>

namespace {

constexpr unsigned thread_count = 8;
constexpr std::uint32_t qps_per_thread = 64;
constexpr std::uint32_t pair_count = thread_count * qps_per_thread / 2;
constexpr std::uint32_t queue_count = 12;  // each shared by many queue pairs and all threads

/// A thread whose exception becomes the verdict. After an exception, no other thread waits at the
/// socket `ends_with`.
template <typename Function>
std::thread guarded(stress::verdict& verdict, Function function, int ends_with = -1) {
  return std::thread{[&verdict, function, ends_with] {
    try {
      function();
    } catch (const std::exception& error) {
      verdict.fail(error.what());
      if (ends_with >= 0) ::shutdown(ends_with, SHUT_RDWR);
    }
  }};
}

/// Clients and a server at work in this process, until `end`.
void work(stress::client& client, stress::server& server, stress::verdict& verdict,
          std::uint64_t seed, rig::clock::time_point end, unsigned threads_wanted) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < threads_wanted; ++t) {
    threads.push_back(guarded(verdict, [&, t] {
      std::mt19937_64 random{seed + t};
      std::mt19937_64 aside{seed + t};
      const std::function<void()> meanwhile = [&] {
        server.serve(static_cast<std::uint32_t>(aside() % queue_count));
        if (aside() % 64 == 0) server.churn(aside);
      };
      while (!verdict.over() && rig::clock::now() < end) client.run_operation(random, meanwhile);
    }));
  }
  for (std::thread& t : threads) t.join();
}

void one_process(std::uint64_t seconds, std::uint64_t seed) {
  const rig::device device;
  stress::verdict verdict;
  const stress::event_reader events{device};
  stress::server server{device, pair_count, queue_count, verdict};
  stress::client client{device, pair_count, queue_count, verdict,
                        [&](const stress::rebuild_order& o) { return server.rebuild(o); }};
  client.connect_all();
  work(client, server, verdict, seed, rig::clock::now() + std::chrono::seconds{seconds},
       thread_count);
  CHECK(verdict.text() == "");
  CHECK(client.rebuilds() > pair_count);
  CHECK(server.messages() > 0);
  WARN(client.operations() << " operations, " << server.messages() << " messages, "
                           << client.rebuilds() << " queue pairs");
}

// ---- two processes: each is the client of the other's server

constexpr unsigned threads_each = thread_count / 2;
constexpr std::uint32_t pairs_each = pair_count / 2;

/// `asks` leads to the other's server, `answers` from its client; `ends` tells when it is done.
std::string half(int asks, int answers, int ends, std::uint64_t seconds, std::uint64_t seed) {
  const rig::device device;
  stress::verdict verdict;
  const stress::event_reader events{device};
  stress::server server{device, pairs_each, queue_count, verdict};
  std::mutex asking;
  stress::client client{device, pairs_each, queue_count, verdict,
                        [&](const stress::rebuild_order& order) {
                          const std::lock_guard lock{asking};
                          rig::put(asks, order);
                          return rig::get<rig::card>(asks);
                        }};
  std::thread answering = guarded(
      verdict,
      [&] {
        for (;;) {
          const auto order = rig::get<stress::rebuild_order>(answers);
          if (order.pair == pairs_each) return;  // No more will come.
          rig::put(answers, server.rebuild(order));
        }
      },
      answers);
  std::thread working = guarded(verdict, [&] {
    client.connect_all();
    work(client, server, verdict, seed, rig::clock::now() + std::chrono::seconds{seconds},
         threads_each);
  });
  working.join();
  rig::put(ends, 'e');
  // The other side's last messages still need receives.
  std::thread serving = guarded(verdict, [&] {
    for (char ended = 0; ::recv(ends, &ended, 1, MSG_DONTWAIT) < 0;) {
      for (std::uint32_t q = 0; q < queue_count; ++q) server.serve(q);
    }
  });
  serving.join();
  if (verdict.text().empty()) {
    rig::put(asks, stress::rebuild_order{.pair = pairs_each});
  } else {
    ::shutdown(asks, SHUT_RDWR);
  }
  answering.join();
  if (verdict.text().empty() && server.messages() == 0) verdict.fail("no messages");
  return verdict.text();
}

int other_half(const std::vector<std::string>& arguments) {
  const int fd = rig::first_inherited_fd;
  rig::put_text(
      fd + 2, half(fd, fd + 1, fd + 2, std::stoull(arguments.at(0)), std::stoull(arguments.at(1))));
  return 0;
}
const rig::role other_role{"threads-other", other_half};

void two_processes(std::uint64_t seconds, std::uint64_t seed) {
  rig::socket_pair a, b, ends;
  const rig::child other{"threads-other",
                         {b.theirs.get(), a.theirs.get(), ends.theirs.get()},
                         {std::to_string(seconds), std::to_string(seed + thread_count)}};
  for (rig::socket_pair* pair : {&a, &b, &ends}) pair->theirs.close();
  CHECK(half(a.ours.get(), b.ours.get(), ends.ours.get(), seconds, seed) == "");
  CHECK(rig::get_text(ends.ours.get()) == "");
}

}  // namespace

TEST_CASE("threads share queue pairs, completion queues and regions in one process", "[campaign]") {
  one_process(2, 1);
}

TEST_CASE("threads of two processes share queue pairs and completion queues", "[campaign]") {
  two_processes(2, 1);
}

TEST_CASE("eight threads use 64 queue pairs each for a minute", "[.soak-threads]") {
  one_process(soak::count(60), soak::seed());
}

TEST_CASE("threads of two processes are busy for a minute", "[.soak-processes]") {
  two_processes(soak::count(60), soak::seed());
}
