#include "census.hpp"
#include "cm/transport_rig.hpp"
#include "soak.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cerrno>
#include <random>

// Processes that have connections of rdma_cm with this one are killed at any moment.

namespace softverbs::cm::test {

namespace {

using clock = std::chrono::steady_clock;

/// A conversation that this side asked for.
struct talk {
  std::unique_ptr<talker> one;
  std::size_t said = 0;
};
using talks = std::vector<talk>;

constexpr std::size_t talks_max = 4;  ///< that either side asks for in a round

/// Replies to requests that have no reply yet, and lets some conversations end.
void serve_some(side& one, std::mt19937_64& random) {
  for (side::request& each : one.requests) {
    if (!each.from->with) continue;
    if (random() % 8 == 0)
      each.from->with.reset();
    else if (each.from->heard.size() < talks_max)
      each.from->with->send(of_kind(message_kind::reply));
  }
}

/// Sends a little more than was heard: a peer that takes no messages is given up for that.
void talk_some(talks& all, std::mt19937_64& random) {
  for (talk& each : all) {
    const bool may_say = each.one->with && each.said < each.one->heard.size() + 2;
    if (!may_say || random() % 4 != 0) continue;
    each.one->with->send(of_kind(message_kind::ready));
    ++each.said;
  }
}

/// Listens, asks and answers until it is killed, or its parent has gone.
void live(std::uint64_t seed, const endpoint& survivor, int control) {
  std::mt19937_64 random{seed};
  side mine;
  auto name = mine.listen();
  put(control, name->at());
  talks asked;
  char byte = 0;
  while (::recv(control, &byte, 1, MSG_DONTWAIT) != 0) {
    if (asked.size() < talks_max)
      asked.push_back({mine.ask(survivor)});
    else if (random() % 64 == 0)
      asked.erase(asked.begin());
    talk_some(asked, random);
    serve_some(mine, random);
    mine.network->run(clock::now());
  }
}

bool is_over(const talker& one) { return one.ended.has_value() || !one.with; }

struct tally {
  std::uint64_t resets = 0;
  std::uint64_t refusals = 0;
  std::uint64_t requests = 0;
};

/// Runs and kills one other process.
void round(side& survivor, const endpoint& here, std::mt19937_64& random, tally& total) {
  const std::uint64_t seed = random();
  forked other{[&](int control) {
    survivor.network->abandon();
    live(seed, here, control);
  }};
  const auto spin = [&](std::uint64_t microseconds) {
    const auto end = clock::now() + std::chrono::microseconds{random() % microseconds};
    do survivor.network->run(clock::now());
    while (clock::now() < end);
  };
  if (random() % 16 == 0) {
    spin(3000);  // The process starts meanwhile.
    other.kill();
    settle({&survivor});
  } else {
    const auto there = other.get<endpoint>();
    talks asked;
    for (std::size_t n = 0; n < talks_max; ++n) asked.push_back({survivor.ask(there)});
    const auto end = clock::now() + std::chrono::microseconds{random() % 3000};
    do {
      talk_some(asked, random);
      serve_some(survivor, random);
      survivor.network->run(clock::now());
    } while (clock::now() < end);
    other.kill();
    REQUIRE(run_until({&survivor}, [&] {
      return std::ranges::all_of(asked, [](const talk& each) { return is_over(*each.one); });
    }));
    for (const talk& each : asked) {
      const int ended = each.one->ended.value_or(0);
      CAPTURE(ended);
      CHECK((ended == ECONNRESET || ended == ECONNREFUSED));
      ++(ended == ECONNRESET ? total.resets : total.refusals);
    }
  }
  REQUIRE(run_until({&survivor}, [&] {
    settle({&survivor});
    return std::ranges::all_of(survivor.requests,
                               [](const auto& one) { return is_over(*one.from); });
  }));
  total.requests += survivor.requests.size();
  survivor.requests.clear();
}

void kill_often(bool by_tcp, std::uint64_t rounds, std::uint64_t seed) {
  CAPTURE(by_tcp);
  const setting port{"SOFTVERBS_PORT", free_port()};
  const setting link{"SOFTVERBS_LINK", by_tcp ? "tcp" : ""};
  std::mt19937_64 random{seed};
  tally total;
  side survivor;
  auto name = survivor.listen();
  const endpoint here = name->at();
  const census::holdings before = census::now();
  for (std::uint64_t n = 0; n < rounds; ++n) {
    INFO("round " << n);
    // Now and then, the port is the other process's.
    if (random() % 32 == 0) {
      name.reset();
      name = survivor.listen("127.0.0.1", here.port);
    }
    round(survivor, here, random, total);
  }
  // One descriptor is missing until the survivor has taken the port back from the last that held
  // it.
  CHECK(run_until({&survivor}, [&] { return census::now().descriptors == before.descriptors; }));
  const census::holdings after = census::now();
  CHECK(after.resident_kib < before.resident_kib + 16 * 1024);
  CHECK(total.requests > 0);
  CHECK(total.resets + total.refusals > 0);
  WARN((by_tcp ? "TCP: " : "local: ")
       << rounds << " deaths, " << total.requests << " requests of the dead, " << total.resets
       << " resets, " << total.refusals << " refusals");
}

}  // namespace

TEST_CASE("whoever is killed, its peers hear of it, and nothing is left", "[campaign]") {
  kill_often(GENERATE(false, true), 60, 1);
}

TEST_CASE("ten thousand killed peers of connections leave the survivor as it was",
          "[.soak-cm-kill9]") {
  const std::uint64_t each = std::max<std::uint64_t>(soak::count(10000) / 2, 20);
  const std::uint64_t seed = soak::seed();
  kill_often(false, each, seed);
  kill_often(true, each, seed);
}

}  // namespace softverbs::cm::test
