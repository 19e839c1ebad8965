#pragma once

#include "qp/pair.hpp"

#include <softverbs/simulation.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace softverbs::test {

/// A world of hosts that does the first thing there is to do, and moves the time when there is
/// none.
class plain_world {
 public:
  plain_world() { softverbs_simulate_time(&now); }
  plain_world(const plain_world&) = delete;
  ~plain_world() {
    for (softverbs_host* const host : hosts)
      if (host != nullptr) CHECK(softverbs_remove_host(host) == 0);
    softverbs_simulate_time(nullptr);
  }

  softverbs_host* add(unsigned number) {
    hosts.push_back(make(number));
    return hosts.back();
  }
  softverbs_host* make(unsigned number) {
    const ibv_gid gid = gid_of(number);
    softverbs_world calls{};
    calls.context = this;
    calls.has_work = &has_work;
    calls.sent = &sent;
    calls.ended = &ended;
    calls.find = &find;
    calls.called = &called;
    calls.written = &written;
    calls.readable = &readable;
    calls.destroyed = &destroyed;
    calls.keeps_tokens = keeps_tokens;
    calls.link_bytes = link_bytes;
    calls.arms_for_later = arms_for_later;
    softverbs_host* const made = softverbs_add_host(&calls, &gid, 1, std::uint16_t(number), 7);
    REQUIRE(made != nullptr);
    return made;
  }
  static ibv_gid gid_of(unsigned number) {
    ibv_gid gid{};
    gid.raw[0] = 0xfd;
    gid.raw[15] = std::uint8_t(number);
    return gid;
  }

  /// Does one step of a host; false: there is none.
  bool step() {
    for (softverbs_host* const host : hosts) {
      if (host == nullptr) continue;
      std::array<softverbs_step, 8> steps;
      if (softverbs_list_steps(host, steps.data(), steps.size()) == 0) continue;
      softverbs_do_step(host, &steps[0]);
      return true;
    }
    return false;
  }
  void work() {
    while (step()) {
    }
  }
  /// Lets the oldest frame arrive, and be taken; false: none is under way.
  bool deliver() {
    if (in_flight.empty() || is_holding) return false;
    const softverbs_end from = in_flight.front().first;
    in_flight.pop_front();
    softverbs_deliver(&from);
    work();
    return true;
  }
  /// Goes on until nothing is left to do at this time.
  void run() {
    do work();
    while (deliver() || end_links());
  }
  /// Goes on until `done`, and moves the time to the next timer when nothing else is left.
  template <class Done>
  void run_until(Done done) {
    for (run(); !done(); run()) {
      std::int64_t next = INT64_MAX;
      for (const softverbs_host* const host : hosts)
        if (host != nullptr) next = std::min(next, softverbs_next_timer(host));
      REQUIRE(next != INT64_MAX);
      now = std::max(now, next);
    }
  }

  std::int64_t now = 1'000'000'000;
  std::vector<softverbs_host*> hosts;
  std::deque<std::pair<softverbs_end, softverbs_frame>> in_flight;
  std::deque<softverbs_end> ending;
  std::string trace;
  unsigned rnr_naks = 0;    ///< frames of that kind
  bool is_cut = false;      ///< no host finds another
  bool is_holding = false;  ///< no frame arrives
  // Hosts that are added from now on have these.
  bool keeps_tokens = false;
  std::uint32_t link_bytes = 0;
  bool arms_for_later = false;
  std::function<int(softverbs_host*, std::string_view, ibv_context*)> on_call;
  struct device_write {
    softverbs_host* host;
    std::uint64_t address, length;
    std::uint32_t remote_key;
    friend bool operator==(const device_write&, const device_write&) = default;
  };
  std::vector<device_write> writes;
  std::vector<std::pair<softverbs_host*, int>> told_readable;
  std::vector<std::pair<softverbs_host*, const void*>> told_destroyed;
  std::vector<softverbs_host*> told_work;

 private:
  /// Closes both ends of each link that has ended; false: none has.
  bool end_links() {
    if (ending.empty()) return false;
    for (; !ending.empty(); ending.pop_front()) {
      softverbs_end peer;
      const bool has_peer = softverbs_peer_end(&ending.front(), &peer) != 0;
      softverbs_end_link(&ending.front());
      if (has_peer) softverbs_end_link(&peer);
    }
    return true;
  }
  static plain_world& of(void* context) { return *static_cast<plain_world*>(context); }
  static void has_work(void* context, softverbs_host* host) {
    of(context).told_work.push_back(host);
  }
  static void sent(void* context, const softverbs_end* from, const softverbs_frame* frame) {
    plain_world& w = of(context);
    w.in_flight.emplace_back(*from, *frame);
    w.rnr_naks += frame->is_rnr_nak;
    w.trace += std::to_string(frame->source_qpn) + '>' + std::to_string(frame->destination_qpn) +
               ' ' + std::to_string(frame->kind) + ' ' + std::to_string(frame->bytes) + '\n';
  }
  static void ended(void* context, const softverbs_end* end) { of(context).ending.push_back(*end); }
  static softverbs_host* find(void* context, const ibv_gid* gid, std::uint16_t slot) {
    plain_world& w = of(context);
    if (w.is_cut || gid->raw[15] != slot || slot == 0 || slot > w.hosts.size()) return nullptr;
    return w.hosts[slot - 1u];
  }
  static int called(void* context, softverbs_host* host, const char* verb, ibv_context* ctx) {
    return of(context).on_call ? of(context).on_call(host, verb, ctx) : 0;
  }
  static void written(void* context, softverbs_host* host, std::uint64_t address,
                      std::uint64_t length, std::uint32_t remote_key) {
    of(context).writes.push_back({host, address, length, remote_key});
  }
  static void destroyed(void* context, softverbs_host* host, const void* queue) {
    of(context).told_destroyed.emplace_back(host, queue);
  }
  static void readable(void* context, softverbs_host* host, int fd) {
    of(context).told_readable.emplace_back(host, fd);
  }
};

/// Makes the calls of a block those of a host.
class on_host {
 public:
  explicit on_host(softverbs_host* host) : before_{softverbs_enter_host(host)} {}
  on_host(const on_host&) = delete;
  ~on_host() { softverbs_enter_host(before_); }

 private:
  softverbs_host* before_;
};

/// Two connected queue pairs on two hosts of a world.
class far_pair {
 public:
  explicit far_pair(pair_options how = {}, std::uint32_t link_bytes = 0,
                    bool arms_for_later = false) {
    world.link_bytes = link_bytes;
    world.arms_for_later = arms_for_later;
    for (const unsigned number : {1u, 2u}) {
      const on_host here{world.add(number)};
      how.peer = plain_world::gid_of(3 - number);
      side_of(number) = std::make_unique<side>(how);
      side_of(number)->to_init();
    }
    for (const unsigned number : {1u, 2u}) connect(number, *side_of(number), *side_of(3 - number));
  }
  ~far_pair() {
    for (const unsigned number : {1u, 2u}) {
      if (host(number) == nullptr) continue;
      const on_host here{host(number)};
      side_of(number).reset();
    }
    world.run();
  }
  /// Ends a host's process, and removes the host.
  void remove(unsigned number) {
    {
      const on_host here{host(number)};
      side_of(number).reset();
    }
    softverbs_host* const gone = std::exchange(world.hosts[number - 1u], nullptr);
    REQUIRE(softverbs_remove_host(gone) == 0);
    std::erase_if(world.ending, [&](const softverbs_end& end) { return end.host == gone; });
    std::erase_if(world.in_flight, [&](const auto& one) { return one.first.host == gone; });
  }
  /// Adds host 2 again, which was removed, and gives a new side on host 1 that is connected with
  /// its own.
  std::unique_ptr<side> come_back(pair_options how) {
    world.hosts[1] = world.make(2);
    std::unique_ptr<side> on_first;
    for (const unsigned number : {1u, 2u}) {
      const on_host here{host(number)};
      how.peer = plain_world::gid_of(3 - number);
      (number == 1 ? on_first : side_of(2)) = std::make_unique<side>(how);
      (number == 1 ? *on_first : b()).to_init();
    }
    connect(1, *on_first, b());
    connect(2, b(), *on_first);
    return on_first;
  }
  [[nodiscard]] side& a() const { return *sides_[0]; }
  [[nodiscard]] side& b() const { return *sides_[1]; }
  [[nodiscard]] softverbs_host* host(unsigned number) const { return world.hosts[number - 1u]; }
  /// Posts on `a`'s host.
  void send(const ibv_send_wr& wr, std::vector<ibv_sge> list) {
    const on_host here{host(1)};
    REQUIRE(a().send(wr, std::move(list)) == 0);
  }
  /// Returns the next completion of one side; fails the test if none comes.
  ibv_wc completion(unsigned number) {
    ibv_wc wc{};
    world.run_until([&] {
      const on_host here{host(number)};
      return verb::poll_cq(side_of(number)->cq, 1, &wc) == 1;
    });
    return wc;
  }

  plain_world world;

 private:
  void connect(unsigned number, side& own, const side& peer) {
    const on_host here{host(number)};
    own.to_rtr(peer.qp->qp_num, 0);
    own.to_rts(0);
  }
  std::unique_ptr<side>& side_of(unsigned number) { return sides_[number - 1u]; }
  std::array<std::unique_ptr<side>, 2> sides_;
};

}  // namespace softverbs::test
