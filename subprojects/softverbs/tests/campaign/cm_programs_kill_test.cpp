#include "census.hpp"
#include "cm_party.hpp"
#include "process.hpp"
#include "rig.hpp"
#include "soak.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

// Programs that use rdma_cm by the host's own librdmacm are killed at any moment. One process, the
// survivor, has connections with all of them: it must hear of each end, and keep nothing.

namespace {

using rig::cm_party;
using rig::fail;

constexpr cm_party::number survivor_number = 1;
constexpr std::size_t living_max = 2;       ///< other processes at the same time
constexpr std::size_t connections_max = 6;  ///< limit of a process

struct greeting {
  cm_party::number number = 0;
  std::uint16_t port = 0;
};

// ---- the process that is killed

bool is_left(int control) {
  char byte = 0;
  return ::recv(control, &byte, 1, MSG_DONTWAIT) == 0;
}

/// Arguments: its number, a seed, then the number and port of each party to connect to.
int be_victim(const std::vector<std::string>& arguments) {
  constexpr int control = rig::first_inherited_fd;
  const auto at = [&](std::size_t n) { return std::stoull(arguments.at(n)); };
  std::mt19937_64 random{at(1)};
  cm_party mine{at(0), random()};
  rig::put(control, greeting{at(0), mine.port()});
  while (!is_left(control)) {
    if (mine.connections() < connections_max && random() % 4 == 0) {
      const std::size_t server = 2 + 2 * (random() % ((arguments.size() - 2) / 2));
      mine.connect(static_cast<std::uint16_t>(at(server + 1)), at(server));
    }
    mine.act();
    mine.step(random() % 4 == 0 ? 0 : 1);
  }
  return 0;
}
const rig::role victim_role{"rdma_cm victim", be_victim};

// ---- the process that survives

struct victim {
  greeting is;
  bool has_greeted = false;
  rig::socket_pair control;
  rig::child process;
};

class survivor {
 public:
  explicit survivor(std::uint64_t seed) : random_{seed}, mine_{survivor_number, seed} {}

  void run(std::uint64_t rounds) {
    meet_self();
    const census::holdings before = settled(nullptr);
    for (std::uint64_t n = 0; n < rounds; ++n) round();
    while (!living_.empty()) kill(0);
    mine_.close_all();
    serve_next();
    see_all();
    settled(&before);
    const cm_party::tally& all = mine_.counts();
    std::printf(
        "%llu deaths: %llu connections, %llu disconnected, %llu rejected, %llu unreachable, %llu "
        "refused calls, %llu messages, %llu moved\n",
        static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(all.established),
        static_cast<unsigned long long>(all.disconnected),
        static_cast<unsigned long long>(all.rejected),
        static_cast<unsigned long long>(all.unreachable),
        static_cast<unsigned long long>(all.refused_calls),
        static_cast<unsigned long long>(all.messages),
        static_cast<unsigned long long>(all.migrated));
  }

 private:
  std::uint64_t pick(std::uint64_t below) { return random_() % below; }

  void await(const char* what, const std::function<bool()>& happened) {
    const auto end = rig::clock::now() + rig::patience;
    while (!happened()) {
      if (rig::clock::now() > end) fail(what, ETIMEDOUT);
      mine_.step(1);
    }
  }

  /// Opens what stays open: the device, and the node's descriptors.
  void meet_self() {
    await("a connection with ourselves", [this] {
      if (mine_.connections() == 0) mine_.connect(mine_.port(), survivor_number);
      return mine_.established_with(survivor_number) != 0;
    });
    mine_.close_all();
  }

  void start_victim() {
    victim& made = living_.emplace_back();
    made.is.number = ++last_number_;
    std::vector<std::string> arguments{std::to_string(made.is.number), std::to_string(random_()),
                                       std::to_string(survivor_number),
                                       std::to_string(mine_.port())};
    for (const victim& other : living_) {
      if (!other.has_greeted) continue;
      arguments.push_back(std::to_string(other.is.number));
      arguments.push_back(std::to_string(other.is.port));
    }
    made.process = rig::child{"rdma_cm victim", {made.control.theirs.get()}, arguments};
    made.control.theirs.close();
  }

  void work(std::chrono::microseconds time) {
    const auto end = rig::clock::now() + time;
    do {
      mine_.act();
      mine_.step(0);
    } while (rig::clock::now() < end);
  }

  void hear_greeting(victim& from) {
    await("a greeting", [&] {
      pollfd one{from.control.ours.get(), POLLIN, 0};
      return ::poll(&one, 1, 0) == 1;
    });
    from.is = rig::get<greeting>(from.control.ours.get());
    from.has_greeted = true;
  }

  /// Kills one. Each connection with it ends by an event.
  void kill(std::size_t n) {
    const cm_party::number gone = living_[n].is.number;
    living_.erase(living_.begin() + static_cast<std::ptrdiff_t>(n));
    await("the end of each connection with the dead",
          [&] { return !mine_.has_connection_with(gone); });
  }

  void round() {
    const std::uint64_t kind = pick(16);
    // Now and then, the well-known port becomes the other process's.
    const bool gives_port_up = kind < 2;
    if (gives_port_up) mine_.stop_listening();
    while (living_.size() < living_max) start_victim();
    victim& newest = living_.back();
    if (kind == 2) {
      work(std::chrono::microseconds{pick(30'000)});  // The process starts meanwhile.
      return kill(living_.size() - 1);
    }
    hear_greeting(newest);
    if (gives_port_up) mine_.listen_again();
    for (std::uint64_t n = pick(4); n > 0; --n) mine_.connect(newest.is.port, newest.is.number);
    if (pick(2) == 0)
      await("a connection after a death",
            [&] { return mine_.established_with(newest.is.number) != 0; });
    work(std::chrono::microseconds{pick(5000)});
    kill(pick(living_.size()));
  }

  /// After all deaths, a process is served as ever.
  void serve_next() {
    start_victim();
    hear_greeting(living_.back());
    const cm_party::number next = living_.back().is.number;
    await("a connection after all deaths", [&] { return mine_.established_with(next) != 0; });
    kill(0);
    mine_.close_all();
  }

  /// Few deaths need not show each way in which a connection goes: the survivor makes the rest.
  void see_all() {
    await("messages, a rejection and a disconnection", [this] {
      if (mine_.connections() == 0) mine_.connect(mine_.port(), survivor_number);
      mine_.act();
      const cm_party::tally& all = mine_.counts();
      return all.messages != 0 && all.rejected != 0 && all.disconnected != 0;
    });
    mine_.close_all();
  }

  /// The holdings once they are those of `before`. There is one descriptor less until the survivor
  /// has taken the well-known port back from the last that held it.
  census::holdings settled(const census::holdings* before) {
    census::holdings now;
    const auto end = rig::clock::now() + rig::patience;
    do {
      mine_.step(1);
      now = census::now();
      if (before == nullptr) return now;
    } while ((now.descriptors != before->descriptors || now.threads != before->threads) &&
             rig::clock::now() < end);
    constexpr std::size_t kib_max = 32 * 1024;
    rig::check(now.descriptors == before->descriptors ? 0 : EMFILE, "descriptors that were left");
    rig::check(now.threads == before->threads ? 0 : EAGAIN, "threads that were left");
    rig::check(now.resident_kib < before->resident_kib + kib_max ? 0 : ENOMEM,
               "memory that was left");
    const std::vector<std::string> names =
        ::geteuid() == 0 ? census::orphans() : std::vector<std::string>{};
    rig::check(names.empty() ? 0 : EADDRINUSE, "names that were left");
    return now;
  }

  std::mt19937_64 random_;
  cm_party mine_;
  std::deque<victim> living_;
  cm_party::number last_number_ = survivor_number;
};

/// Arguments: the number of deaths, a seed.
int be_survivor(const std::vector<std::string>& arguments) {
  survivor{std::stoull(arguments.at(1))}.run(std::stoull(arguments.at(0)));
  return 0;
}
const rig::role survivor_role{"rdma_cm survivor", be_survivor};

// ---- cases

/// A value of SOFTVERBS_PORT whose ports, up to the one for requests, are likely free.
std::string free_port() {
  constexpr std::uint16_t ports = 1024;
  for (;;) {
    const rig::descriptor probe{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in name{};
    name.sin_family = AF_INET;
    socklen_t length = sizeof name;
    auto* const raw = reinterpret_cast<sockaddr*>(&name);
    rig::check(::bind(probe.get(), raw, length) == 0 ? 0 : errno, "bind");
    rig::check(::getsockname(probe.get(), raw, &length) == 0 ? 0 : errno, "getsockname");
    if (ntohs(name.sin_port) > ports) return std::to_string(ntohs(name.sin_port) - ports);
  }
}

void kill_programs(bool by_tcp, std::uint64_t deaths, std::uint64_t seed) {
  CAPTURE(by_tcp, seed);
  std::vector<std::string> environment{"SOFTVERBS_CM=soft", "SOFTVERBS_PORT=" + free_port()};
  if (by_tcp) environment.emplace_back("SOFTVERBS_LINK=tcp");
  rig::child process{
      "rdma_cm survivor", {}, {std::to_string(deaths), std::to_string(seed)}, environment};
  CHECK(process.wait() == 0);
}

}  // namespace

TEST_CASE("a program of librdmacm that is killed is heard of by its peers", "[campaign]") {
  kill_programs(GENERATE(false, true), 6, 1);
}

TEST_CASE("ten thousand killed programs of librdmacm leave the survivor as it was",
          "[.soak-rdmacm-kill9]") {
  const std::uint64_t each = std::max<std::uint64_t>(soak::count(10000) / 2, 20);
  const std::uint64_t seed = soak::seed();
  kill_programs(false, each, seed);
  kill_programs(true, each, seed);
}
