#include "hosts.hpp"
#include "xrc_member.hpp"

#include <sys/mman.h>
#include <catch2/catch.hpp>

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace xrc {
namespace {

constexpr std::uint64_t long_bytes = buffer_bytes;

rig::descriptor new_file() { return rig::descriptor{::memfd_create("xrc", 0)}; }

void listen(member& one, std::uint32_t count = 4) {
  one.obey({.what = deed::listen, .count = count});
}

/// Sends messages of many sizes by one initiator, in turns to two processes of its target's host.
void exchange(member& from, member& with_target, member& other) {
  const std::uint32_t initiator = connect(from, with_target);
  listen(with_target);
  listen(other);
  std::uint64_t seed = 1;
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{40'000}, long_bytes, std::uint64_t{64}}) {
    for (member* const to : {&other, &with_target, &other, &other}) {
      ++seed;
      REQUIRE(from.send(initiator, to->own_queue(), bytes, seed).status == IBV_WC_SUCCESS);
      REQUIRE(to->hears(bytes, seed));
    }
  }
  const auto write = [&](const queue& to, std::uint64_t bytes) {
    return from
        .obey({.what = deed::write, .own = initiator, .to = to, .bytes = bytes, .seed = ++seed})
        .status;
  };
  REQUIRE(write(other.own_queue(), long_bytes) == IBV_WC_SUCCESS);
  CHECK(other.obey({.what = deed::holds, .bytes = long_bytes, .seed = seed}).well);
  queue wrong_key = other.own_queue();
  wrong_key.rkey ^= 1;
  CHECK(write(wrong_key, 64) == IBV_WC_REM_ACCESS_ERR);
}

}  // namespace

TEST_CASE("a target passes messages on to the queues of other processes of its host",
          "[campaign][xrc]") {
  const std::string link = GENERATE("SOFTVERBS_LINK=", "SOFTVERBS_LINK=tcp");
  const rig::descriptor file = new_file();
  member from{file.get(), "", "127.0.0.1", {link}},
      with_target{file.get(), "", "127.0.0.1", {link}}, other{file.get(), "", "127.0.0.1", {link}};
  exchange(from, with_target, other);
}

TEST_CASE("an initiator reaches other processes by a target of its own process",
          "[campaign][xrc]") {
  const std::string link = GENERATE("SOFTVERBS_LINK=", "SOFTVERBS_LINK=tcp");
  const rig::descriptor file = new_file();
  member both{file.get(), "", "127.0.0.1", {link}}, other{file.get(), "", "127.0.0.1", {link}};
  exchange(both, both, other);
}

TEST_CASE("a burst that finds too few receives goes on when there are more", "[campaign][xrc]") {
  const rig::descriptor file = new_file();
  member from{file.get()}, with_target{file.get()}, other{file.get()};
  for (member* const target : {&with_target, &from}) {
    const std::uint32_t initiator = connect(from, *target);
    constexpr std::uint32_t count = 40;
    listen(other, 1);
    from.tell({.what = deed::send,
               .own = initiator,
               .to = other.own_queue(),
               .bytes = 100,
               .seed = 9,
               .count = count});
    for (std::uint32_t heard = 0; heard < count; ++heard) REQUIRE(other.hears(100, 9));
    CHECK(from.heard().status == IBV_WC_SUCCESS);
  }
}

TEST_CASE("a queue of another process that stays empty ends the request with RNR_RETRY_EXC",
          "[campaign][xrc]") {
  const rig::descriptor file = new_file();
  member from{file.get()}, with_target{file.get()}, other{file.get()};
  CHECK(from.send(connect(from, with_target, 2), other.own_queue(), 64, 1).status ==
        IBV_WC_RNR_RETRY_EXC_ERR);
  CHECK(from.send(connect(from, from, 2), other.own_queue(), 64, 1).status ==
        IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_CASE("what is not in the domain of the target is an invalid request", "[campaign][xrc]") {
  const rig::descriptor file = new_file(), other_file = new_file();
  member from{file.get()}, with_target{file.get()}, stranger{other_file.get()};
  member gone{file.get()}, without{file.get()};
  listen(stranger);
  without.obey({.what = deed::destroy_queue});
  gone.kill();
  for (const queue& to : {stranger.own_queue(), without.own_queue(), gone.own_queue()}) {
    CHECK(from.send(connect(from, with_target), to, 64, 1).status == IBV_WC_REM_INV_REQ_ERR);
    CHECK(from.send(connect(from, from), to, 64, 1).status == IBV_WC_REM_INV_REQ_ERR);
  }
  // READs and atomics stay in the process of the target.
  member other{file.get()};
  const auto read = [&](member& target) {
    return from
        .obey({.what = deed::read,
               .own = connect(from, target),
               .to = other.own_queue(),
               .bytes = 64})
        .status;
  };
  CHECK(read(with_target) == IBV_WC_REM_INV_REQ_ERR);
  CHECK(read(from) == IBV_WC_REM_INV_REQ_ERR);
}

TEST_CASE("the death of a queue's process ends a message that waits for it", "[campaign][xrc]") {
  const rig::descriptor file = new_file();
  for (const bool is_target_near : {false, true}) {
    member from{file.get()}, with_target{file.get()}, dying{file.get()};
    member* const target = is_target_near ? &from : &with_target;
    const std::uint32_t initiator = connect(from, *target);
    listen(dying, 1);
    REQUIRE(from.send(initiator, dying.own_queue(), 64, 1).status == IBV_WC_SUCCESS);
    REQUIRE(::kill(dying.pid(), SIGSTOP) == 0);
    from.tell({.what = deed::send,
               .own = initiator,
               .to = dying.own_queue(),
               .bytes = 64,
               .seed = 2,
               .count = 3});
    dying.kill();
    CHECK(from.heard().status == IBV_WC_REM_INV_REQ_ERR);
  }
}

TEST_CASE("a target that is destroyed leaves no initiator waiting", "[campaign][xrc]") {
  const rig::descriptor file = new_file();
  member from{file.get()}, with_target{file.get()}, other{file.get()};
  const end target = with_target.obey({.what = deed::make_target}).made;
  const end initiator = from.obey({.what = deed::make_initiator}).made;
  with_target.obey({.what = deed::connect, .own = target.number, .peer = initiator});
  from.obey({.what = deed::connect, .own = initiator.number, .peer = target});
  REQUIRE(::kill(other.pid(), SIGSTOP) == 0);
  from.tell({.what = deed::send, .own = initiator.number, .to = other.own_queue(), .bytes = 64});
  with_target.obey({.what = deed::destroy, .own = target.number});
  CHECK(from.heard().status == IBV_WC_RETRY_EXC_ERR);
}

TEST_CASE("eight processes of two hosts reach each other by four queue pairs each",
          "[campaign][xrc]") {
  if (!rig::can_make_hosts()) return;
  constexpr std::size_t hosts_count = 2, each = 4, all = hosts_count * each;
  const rig::two_hosts hosts;
  const rig::descriptor file = new_file();
  std::vector<std::unique_ptr<member>> members;
  for (std::size_t i = 0; i < all; ++i) {
    const bool is_a = i < each;
    const std::string address = is_a ? "10.99.0.1" : "10.99.0.2";
    members.push_back(std::make_unique<member>(file.get(), is_a ? hosts.a() : hosts.b(), address,
                                               std::vector{"SOFTVERBS_LISTEN=" + address}));
    listen(*members.back(), 8);
  }
  // Each has an initiator for each host, whose target serves all processes of that host. The
  // targets are shared out among them.
  std::size_t queue_pairs = 0;
  std::vector<std::vector<std::uint32_t>> initiators(all);
  for (std::size_t from = 0; from < all; ++from) {
    for (std::size_t host = 0; host < hosts_count; ++host) {
      initiators[from].push_back(connect(*members[from], *members[host * each + from % each]));
      queue_pairs += 2;
    }
  }
  for (std::size_t from = 0; from < all; ++from) {
    for (std::size_t to = 0; to < all; ++to) {
      const std::uint64_t seed = from * all + to;
      REQUIRE(members[from]
                  ->send(initiators[from][to / each], members[to]->own_queue(), 5000, seed)
                  .status == IBV_WC_SUCCESS);
      REQUIRE(members[to]->hears(5000, seed));
    }
  }
  CHECK(queue_pairs == 4 * all);  // RC needs a queue pair for each other process: 7 * all.
}

}  // namespace xrc
