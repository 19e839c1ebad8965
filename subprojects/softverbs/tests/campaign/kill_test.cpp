#include "busy.hpp"
#include "census.hpp"
#include "process.hpp"
#include "rig.hpp"
#include "soak.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>

namespace {

/// When the other process is killed.
enum class moment : unsigned { while_it_starts, before_we_connect, while_busy };

int victim(const std::vector<std::string>& arguments) {
  const int control = rig::first_inherited_fd;
  const rig::device device;
  busy::side side{device, std::stoull(arguments.at(0))};
  const bool requests = arguments.at(1) == "requests";
  rig::put(control, side.mine());
  side.connect(rig::get<busy::cards>(control));
  rig::put(control, 'r');
  for (;;) side.pump(requests);
}
const rig::role victim_role{"kill-victim", victim};

void spin(std::chrono::microseconds time) {
  const auto end = rig::clock::now() + time;
  while (rig::clock::now() < end) {
  }
}

/// Runs and kills one other process. \errors The survivor does not end up as expected.
void round(const rig::device& device, std::mt19937_64& random, busy::tally& total) {
  const unsigned dice = static_cast<unsigned>(random() % 16);
  const moment when = dice == 0   ? moment::while_it_starts
                      : dice == 1 ? moment::before_we_connect
                                  : moment::while_busy;
  // Each side asks, answers, or both; somebody asks.
  const bool we_request = random() % 3 != 0;
  const bool it_requests = !we_request || random() % 2 == 0;

  busy::side side{device, random()};
  rig::socket_pair control;
  rig::child other{"kill-victim",
                   {control.theirs.get()},
                   {std::to_string(random()), it_requests ? "requests" : "answers"}};
  control.theirs.close();
  if (when == moment::while_it_starts) {
    spin(std::chrono::microseconds{random() % 20000});
    other.kill();
    return;
  }
  const auto theirs = rig::get<busy::cards>(control.ours.get());
  if (when == moment::before_we_connect) other.kill();
  side.connect(theirs);
  if (when == moment::while_busy) {
    rig::put(control.ours.get(), side.mine());
    rig::get<char>(control.ours.get());
    const auto end = rig::clock::now() + std::chrono::microseconds{random() % 4000};
    do side.pump(we_request);
    while (rig::clock::now() < end);
    other.kill();
  }
  // A requester hears of it; one that only answers need not.
  const auto deadline = rig::clock::now() + rig::patience;
  const bool hears = we_request || random() % 2 == 0;
  while (hears && !side.all_failed()) {
    side.pump(true);
    if (rig::clock::now() > deadline) throw std::runtime_error{"the survivor hears of no death"};
  }
  side.drain();
  total.succeeded += side.results().succeeded;
  total.retries_exceeded += side.results().retries_exceeded;
  total.flushed += side.results().flushed;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool under_address_sanitizer = true;
#elif defined(__has_feature)
constexpr bool under_address_sanitizer = __has_feature(address_sanitizer);
#else
constexpr bool under_address_sanitizer = false;
#endif

/// Links of killed processes close a moment after their last completion.
bool settles(const census::holdings& before) {
  const auto deadline = rig::clock::now() + rig::patience;
  while (rig::clock::now() < deadline) {
    const census::holdings after = census::now();
    if (after.descriptors <= before.descriptors && after.mappings <= before.mappings + 8) {
      return true;
    }
    std::this_thread::yield();
  }
  return false;
}

void kill_often(std::uint64_t rounds, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  busy::tally total;
  {
    const rig::device device;
    const std::uint64_t warm_rounds = std::min<std::uint64_t>(rounds / 2, 200);
    for (std::uint64_t i = 0; i < warm_rounds; ++i) round(device, random, total);
    const census::holdings before = census::now();
    for (std::uint64_t i = warm_rounds; i < rounds; ++i) {
      INFO("round " << i);
      REQUIRE_NOTHROW(round(device, random, total));
    }
    CHECK(settles(before));
    const census::holdings after = census::now();
    INFO("before: " << before.descriptors << " descriptors, " << before.mappings << " mappings, "
                    << before.resident_kib << " KiB");
    INFO("after: " << after.descriptors << " descriptors, " << after.mappings << " mappings, "
                   << after.resident_kib << " KiB");
    CHECK(after.threads == before.threads);
    // AddressSanitizer keeps what is freed, and finds leaks itself.
    CHECK((under_address_sanitizer || after.resident_kib < before.resident_kib + 16 * 1024));
  }
  CHECK(total.retries_exceeded > 0);
  CHECK(total.flushed > 0);
  WARN(total.succeeded << " succeeded, " << total.retries_exceeded << " RETRY_EXC, "
                       << total.flushed << " flushed");
  CHECK(census::leftovers() == std::vector<std::string>{});
  if (::geteuid() == 0) CHECK(census::orphans() == std::vector<std::string>{});
}

}  // namespace

TEST_CASE("whoever is killed, its peer gets RETRY_EXC and flushes, and nothing is left",
          "[campaign]") {
  kill_often(60, 1);
}

TEST_CASE("ten thousand killed peers leave the survivor as it was", "[.soak-kill9]") {
  const std::uint64_t rounds = soak::count(10000);
  kill_often(std::max<std::uint64_t>(rounds, 20), soak::seed());
}
