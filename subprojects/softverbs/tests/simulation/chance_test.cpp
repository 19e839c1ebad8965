#include "simulation/world.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

// Worlds in which chance decides what happens, from seeds.

using namespace softverbs;
using namespace softverbs::test;

namespace {

constexpr unsigned hosts_count = 3;
constexpr std::size_t words = 512;
/// The bytes of a long message, which has pieces, and where they are.
constexpr std::size_t long_bytes = 3 * segment_bytes_max;
constexpr std::size_t long_at = words * 8;
/// The request of each receive, and of each message but a word.
constexpr std::uint64_t received = 1 << 20;
constexpr std::uint64_t not_checked = received + 1;
constexpr unsigned requests_max = 24;
constexpr std::uint32_t receives_max = 16;

/// A queue pair of a host, what it has asked for, and what has become of it.
struct member {
  std::unique_ptr<side> own;
  unsigned host = 0;
  std::uint64_t posted = 0;
  std::uint64_t completed = 0;
  bool has_failed = false;
};

struct kept_copy {
  softverbs_end from;
  std::unique_ptr<softverbs_copy, decltype(&softverbs_free_copy)> frame;
};

class chances {
 public:
  explicit chances(unsigned seed) : random_{seed} {
    for (unsigned number = 1; number <= hosts_count; ++number) world_.add(number);
    for (unsigned first = 1; first <= hosts_count; ++first)
      for (unsigned second = first + 1; second <= hosts_count; ++second) {
        pairs_.push_back({});
        pairs_.back()[0].host = first;
        pairs_.back()[1].host = second;
        connect(pairs_.back());
      }
    for (unsigned number = 1; number <= hosts_count; ++number) open_datagrams(number);
  }
  chances(const chances&) = delete;
  ~chances() {
    copies_.clear();
    for (unsigned number = 1; number <= hosts_count; ++number) close(number);
  }

  void do_something() {
    switch (below(40)) {
      case 0: return below(8) == 0 ? set_port(one_host(), false) : do_something();
      case 1:
      case 2: return set_port(one_host(), true);
      case 3: world_.now += 1'000'000; return;
      case 4:
      case 5: return end_a_link();
      case 6: return below(32) == 0 ? end(one_host()) : begin(one_host());
      case 7: return begin(one_host());
      case 8: return send_datagram();
      case 9: return copy_or_lose();
      case 10: return inject();
      case 11: return mend();
      case 12:
      case 13:
      case 14:
      case 15: return poll(any_member());
      default: break;
    }
    if (below(4) == 0) return post();
    if (below(2) == 0) return deliver();
    step();
  }

  /// Lets each request end that a host without a fault has posted.
  void settle() {
    for (unsigned number = 1; number <= hosts_count; ++number) {
      set_port(number, true);
      begin(number);
    }
    copies_.clear();
    world_.run_until([&] {
      bool is_done = true;
      for (auto& pair : pairs_)
        for (member& one : pair) {
          poll(one);
          is_done = is_done && (one.own == nullptr || one.completed == one.posted);
        }
      return is_done;
    });
  }

  unsigned succeeded = 0;
  unsigned failed = 0;

 private:
  using pair_of_members = std::array<member, 2>;

  unsigned below(unsigned limit) { return unsigned(random_() % limit); }
  unsigned one_host() { return 1 + below(hosts_count); }
  softverbs_host* host(unsigned number) const { return world_.hosts[number - 1]; }
  bool is_alive(unsigned number) const { return alive_[number - 1]; }
  member& any_member() { return pairs_[below(unsigned(pairs_.size()))][below(2)]; }

  void connect(pair_of_members& pair) {
    for (unsigned n : {0u, 1u}) {
      const on_host here{host(pair[n].host)};
      pair[n] = {.own = std::make_unique<side>(
                     pair_options{.bytes = long_at + long_bytes,
                                  .signal_all = true,
                                  .timeout = 10,
                                  .retry_cnt = 7,
                                  .rnr_retry = 7,
                                  .peer = plain_world::gid_of(pair[1 - n].host)}),
                 .host = pair[n].host};
      pair[n].own->to_init();
    }
    for (unsigned n : {0u, 1u}) {
      const on_host here{host(pair[n].host)};
      pair[n].own->to_rtr(pair[1 - n].own->qp->qp_num, 0);
      pair[n].own->to_rts(0);
      for (std::uint32_t r = 0; r < receives_max; ++r)
        REQUIRE(pair[n].own->receive(received, {pair[n].own->piece(0, 0)}) == 0);
    }
  }
  void disconnect(pair_of_members& pair) {
    for (member& one : pair) {
      const on_host here{host(one.host)};
      one.own.reset();
    }
  }

  void open_datagrams(unsigned number) {
    const on_host here{host(number)};
    datagrams_[number - 1] =
        std::make_unique<side>(pair_options{.type = IBV_QPT_UD, .bytes = 4096});
    side& own = *datagrams_[number - 1];
    own.to_init();
    own.to_rtr(0, 0);
    own.to_rts(0);
    for (unsigned n = 0; n < 16; ++n) REQUIRE(own.receive(received, {own.piece(0, 100)}) == 0);
  }

  void post() {
    pair_of_members& pair = pairs_[below(unsigned(pairs_.size()))];
    const unsigned n = below(2);
    member& from = pair[n];
    if (from.own == nullptr || pair[1 - n].own == nullptr || !is_alive(from.host)) return;
    if (from.has_failed || from.posted - from.completed >= requests_max) return;
    const on_host here{host(from.host)};
    const std::size_t at = from.posted % words * 8;
    side& own = *from.own;
    const std::uint64_t value = from.posted + 1;
    std::memcpy(own.memory.data() + at, &value, 8);
    side& to = *pair[1 - n].own;
    ibv_send_wr wr = one_sided(IBV_WR_RDMA_WRITE, to, at, at);
    ibv_sge bytes = own.piece(at, 8);
    if (const unsigned kind = below(6); kind < 2) {
      wr = one_sided(kind == 0 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, to, long_at, not_checked);
      bytes = own.piece(long_at, long_bytes);
    } else if (kind == 2) {
      wr = request(IBV_WR_SEND, not_checked);
      bytes = own.piece(0, 0);
    }
    REQUIRE(own.send(wr, {bytes}) == 0);
    ++from.posted;
  }

  void poll(member& one) {
    if (one.own == nullptr || !is_alive(one.host)) return;
    const on_host here{host(one.host)};
    ibv_wc wc{};
    while (verb::poll_cq(one.own->cq, 1, &wc) == 1) {
      const bool is_good = wc.status == IBV_WC_SUCCESS;
      one.has_failed = one.has_failed || !is_good;
      if (wc.wr_id == received) {
        if (is_good) REQUIRE(one.own->receive(received, {one.own->piece(0, 0)}) == 0);
        continue;
      }
      ++one.completed;
      if (is_good && wc.wr_id < long_at) check_word(one, wc.wr_id);
      ++(is_good ? succeeded : failed);
      if (!is_good) CHECK((wc.status == IBV_WC_RETRY_EXC_ERR || wc.status == IBV_WC_WR_FLUSH_ERR));
    }
  }

  /// Checks that the word of a WRITE that is done is there, unless its host has gone.
  void check_word(const member& from, std::size_t at) {
    for (const pair_of_members& pair : pairs_)
      for (const unsigned n : {0u, 1u})
        if (&pair[n] == &from && pair[1 - n].own != nullptr) {
          std::uint64_t value = 0;
          std::memcpy(&value, pair[1 - n].own->memory.data() + at, sizeof value);
          CHECK(value == from.completed);
        }
  }

  /// Connects a pair anew that has failed, and whose hosts are there.
  void mend() {
    for (pair_of_members& pair : pairs_) {
      if (!is_alive(pair[0].host) || !is_alive(pair[1].host)) continue;
      if (pair[0].own != nullptr && !pair[0].has_failed && !pair[1].has_failed) continue;
      disconnect(pair);
      connect(pair);
    }
  }

  void set_port(unsigned number, bool up) {
    if (is_alive(number)) REQUIRE(softverbs_set_port(host(number), up ? 1 : 0) == 0);
  }
  void step() {
    softverbs_host* const one = host(one_host());
    std::array<softverbs_step, 16> steps;
    const unsigned count = softverbs_list_steps(one, steps.data(), steps.size());
    if (count != 0) softverbs_do_step(one, &steps[below(count)]);
  }
  /// Takes the oldest frame of one end from the frames under way.
  bool take_frame(std::pair<softverbs_end, softverbs_frame>& frame) {
    auto& all = world_.in_flight;
    if (all.empty()) return false;
    const softverbs_end end = all[below(unsigned(all.size()))].first;
    const auto first = std::ranges::find_if(all, [&](const auto& one) {
      return one.first.link == end.link && one.first.generation == end.generation;
    });
    frame = *first;
    all.erase(first);
    return true;
  }
  void deliver() {
    std::pair<softverbs_end, softverbs_frame> frame;
    if (take_frame(frame)) softverbs_deliver(&frame.first);
  }
  void copy_or_lose() {
    std::pair<softverbs_end, softverbs_frame> frame;
    if (!take_frame(frame)) return;
    if (frame.second.may_be_lost == 0) return softverbs_deliver(&frame.first);
    kept_copy copy{frame.first, {softverbs_copy_frame(&frame.first), softverbs_free_copy}};
    if (copy.frame != nullptr && below(2) == 0) copies_.push_back(std::move(copy));
    if (below(2) == 0)
      softverbs_lose(&frame.first);
    else
      softverbs_deliver(&frame.first);
  }
  void inject() {
    if (copies_.empty()) return;
    const kept_copy& one = copies_[below(unsigned(copies_.size()))];
    softverbs_inject(&one.from, one.frame.get());
  }
  void send_datagram() {
    const unsigned from = one_host();
    const unsigned to = one_host();
    if (from == to || !is_alive(from) || datagrams_[to - 1] == nullptr) return;
    const on_host here{host(from)};
    side& own = *datagrams_[from - 1];
    ibv_ah_attr path = side::path();
    path.grh.dgid = plain_world::gid_of(to);
    ibv_ah* const ah = verb::create_ah(own.pd, &path);
    ibv_send_wr wr = request(IBV_WR_SEND);
    wr.wr.ud = {.ah = ah, .remote_qpn = datagrams_[to - 1]->qp->qp_num, .remote_qkey = 0x1234};
    const int error = own.send(wr, {own.piece(0, 8)});
    CHECK((error == 0 || error == ENOMEM));
    ibv_wc wc{};
    while (verb::poll_cq(own.cq, 1, &wc) == 1)
      if (wc.wr_id == received) REQUIRE(own.receive(received, {own.piece(0, 100)}) == 0);
    CHECK(verb::destroy_ah(ah) == 0);
  }
  void end_a_link() {
    if (world_.ending.empty()) return;
    const softverbs_end end = world_.ending.front();
    world_.ending.pop_front();
    softverbs_end peer;
    const bool has_peer = softverbs_peer_end(&end, &peer) != 0;
    softverbs_end_link(&end);
    if (has_peer) softverbs_end_link(&peer);
  }

  /// Ends a host's process, or its power.
  void end(unsigned number) {
    if (!is_alive(number)) return;
    if (below(2) == 0)
      softverbs_kill_host(host(number));
    else
      softverbs_vanish_host(host(number));
    alive_[number - 1] = false;
  }
  void close(unsigned number) {
    softverbs_host* const gone = host(number);
    for (pair_of_members& pair : pairs_)
      for (member& one : pair)
        if (one.host == number) {
          const on_host here{gone};
          one.own.reset();
        }
    {
      const on_host here{gone};
      datagrams_[number - 1].reset();
    }
    std::erase_if(world_.ending, [&](const softverbs_end& end) { return end.host == gone; });
    std::erase_if(world_.in_flight, [&](const auto& one) { return one.first.host == gone; });
    std::erase_if(copies_, [&](const kept_copy& one) { return one.from.host == gone; });
    const softverbs_counts now = softverbs_count_objects(gone);
    const softverbs_counts none{};
    CHECK(std::memcmp(&now, &none, sizeof now) == 0);
  }
  /// Removes a host that has ended, and adds it again.
  void begin(unsigned number) {
    if (is_alive(number)) return;
    close(number);
    REQUIRE(softverbs_remove_host(host(number)) == 0);
    world_.hosts[number - 1] = world_.make(number);
    alive_[number - 1] = true;
    open_datagrams(number);
  }

  std::mt19937 random_;
  plain_world world_;
  std::vector<pair_of_members> pairs_;
  std::array<std::unique_ptr<side>, hosts_count> datagrams_;
  std::array<bool, hosts_count> alive_{true, true, true};
  std::vector<kept_copy> copies_;
};

}  // namespace

TEST_CASE("whatever befalls hosts and their network, each request ends", "[simulation]") {
  unsigned succeeded = 0;
  unsigned failed = 0;
  for (unsigned seed = 0; seed < 30; ++seed) {
    INFO("seed " << seed);
    chances world{seed};
    for (unsigned n = 0; n < 3000; ++n) world.do_something();
    world.settle();
    succeeded += world.succeeded;
    failed += world.failed;
  }
  CHECK(succeeded > 3000);
  CHECK(failed > 500);
}
