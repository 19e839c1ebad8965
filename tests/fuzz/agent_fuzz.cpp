// A hostile peer speaks to an agent, against the whole of lib/agent on soft0. One execution runs a
// script, which is read from the fuzzer's bytes. A script tells what the peer says and does, and
// what the victim's own program does meanwhile. Then the peer falls silent and time passes: all
// lent memory is back.
#include "script.hpp"
#include "support/held.hpp"
#include "victim_program.hpp"

#include "support/hostile_peer.hpp"
#include "support/sizes.hpp"

#include <algorithm>
#include <cstring>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace cordma::fuzz {
namespace {

using namespace std::chrono_literals;
using agent_protocol::frame;
using agent_protocol::kind;
using std::chrono::microseconds;
using test::mib;
using verbs::access;

constexpr std::size_t bytes_max = mib;
constexpr unsigned leases_max = 12;
constexpr unsigned offers_max = 8;
constexpr int acts_max = 64;  ///< limit of a script
constexpr std::byte secret{0xa5};

agent_options policy() {
  agent_options o;
  o.lending.bytes_max = bytes_max;
  o.lending.leases_max = leases_max;
  o.lending.isolation_min = isolation::exact;
  o.offers_max = offers_max;
  return o;
}

/// One way to reach the victim's memory, as it told us.
struct key {
  frame terms{};
  bool is_over = false;  ///< the victim has taken the memory back, for all we know
};

class stage {
 public:
  stage() {
    for (local_mr& one : secrets_) {
      one = world_.memory.allocate_zeroed(256);
      std::ranges::fill(one.bytes(), secret);
    }
    static_cast<void>(world_.lending.strongest(world_.executor, world_.port, world_.gid));
    in_use_at_first_ = in_use();
    come();
  }

  void run(script& in) {
    constexpr unsigned rough_every = 8;  ///< executions: what ends a connection costs a new one
    is_gentle_ = in.byte() % rough_every != 0;
    for (int n = 0; n < acts_max && !in.done() && !victim_->is_cut_off(); ++n) perform(in);
    drive();
    if (victim_->is_cut_off()) {
      leave();
      come();
    } else {
      settle();
    }
    for (const local_mr& one : secrets_)
      must(std::ranges::all_of(one.bytes(), [](std::byte b) { return b == secret; }),
           "what was not lent was not written");
  }

 private:
  // ---- lives

  void come() {
    victim_.emplace(world_, policy());
    peer_.emplace(world_, *victim_);
    program_.emplace(world_, *victim_);
    questions_.clear();
    our_leases_.clear();
    tags_.clear();
    leaving_.clear();
    for (key& k : keys_) k.is_over = true;
    drive();
    in_use_idle_ = in_use();
  }

  /// The connection has ended: so has all that waited, and all is back.
  void leave() {
    drive();
    program_->take_received();
    drive();
    program_->drop();
    drive();
    check_ended();
    program_.reset();
    peer_.reset();
    victim_.reset();
    while (world_.iterate() > 0) {
    }  // The driver has to see its queue empty.
    must(in_use() == in_use_at_first_, "after the connection all memory is back");
  }

  /// The peer says nothing more and time passes; then it declines what it was asked, so that the
  /// next execution finds it able to listen.
  void settle() {
    drive();
    program_->stop();
    drive();
    program_->drop();
    drive();
    for (const auto wait : {2min, 0min, 2min}) {
      world_.clock.advance(wait + 5s);
      tell_credit();
      drive();
    }
    for (int n = 0; n < 4 && !questions_.empty(); ++n) {
      for (const frame& q : std::exchange(questions_, {})) {
        if (can_say())
          put(frame{.kind = kind::refused, .tag = q.tag, .status = std::uint32_t(errc::refused)});
        drive();
      }
    }
    program_->take_received();
    drive();
    program_->stop();
    drive();
    program_->drop();
    tell_credit();
    drive();
    if (!victim_->is_cut_off()) check_ended();
    if (!victim_->is_cut_off()) must(in_use() == in_use_idle_, "what was lent is back");
    constexpr std::size_t keys_kept = 16;
    if (keys_.size() > keys_kept) keys_.erase(keys_.begin(), keys_.end() - keys_kept);
    for (key& k : keys_) k.is_over = true;
    leaving_.clear();
    our_leases_.resize(std::min<std::size_t>(our_leases_.size(), 16));
    tags_.resize(std::min<std::size_t>(tags_.size(), 16));
    // Leases that the peer never returned, and answers that it owes, end with the connection.
    constexpr unsigned lives_max = 4096;
    if (victim_->is_cut_off() || !questions_.empty() || ++executions_ % lives_max == 0) {
      victim_->cut_off(errc::closed);
      leave();
      come();
    }
  }

  void check_ended() {
    test::held now = test::held_by(victim_->self());
    if (!victim_->is_cut_off()) now.borrowed = 0;
    must(now == test::nothing, "nothing is lent, nor borrowed without a connection");
  }
  void check_open() {
    const lending_counters& c = victim_->self().context.counters;
    must(c.open <= leases_max, "no more leases than the policy has");
    // Loans of ours that were dropped are lent until the peer has had its grace.
    must(c.bytes_lent <= bytes_max + leases_max * 4096,
         "no more bytes than the policy has, and our loans");
    must(c.borrowed <= 256, "no more is borrowed than was asked for and may be offered");
  }
  [[nodiscard]] std::size_t in_use() const { return test::held_by(world_.memory).memory_bytes; }

  // ---- turns

  void drive() {
    constexpr int rounds_max = 400;
    int n = 0;
    for (; n < rounds_max; ++n) {
      if (was_refused_ && !victim_->is_cut_off()) victim_->cut_off(errc::device_failed);
      std::size_t did = world_.iterate();
      did += peer_->listen();
      hear();
      if (did == 0) break;
    }
    must(n < rounds_max, "it comes to rest");
    was_refused_ = false;
    in_flight_ = 0;
    if (!is_mute_ && peer_->taken - told_ >= 16) tell_credit();
    check_open();
  }
  void tell_credit() {
    if (can_say()) put(frame{.kind = kind::credit});
    told_ = peer_->taken;
  }
  /// Tells whether the victim has a receive: without one, the device would try again, in real time.
  [[nodiscard]] bool can_say() {
    return !victim_->is_cut_off() && victim_->control().posted_recvs() > in_flight_;
  }

  void put(const auto&... message) {
    ++in_flight_;
    peer_->say(message...);
  }

  void hear() {
    for (const frame& f : peer_->heard) {
      switch (f.kind) {
        case kind::request:
        case kind::renew:
        case kind::hand_over: questions_.push_back(f); break;
        case kind::granted:
        case kind::offer: keys_.push_back({.terms = f}); break;
        case kind::accept: tags_.push_back(f); break;
        default: break;
      }
    }
    peer_->heard.clear();
  }

  // ---- what a script does

  void perform(script& in) {
    const std::uint8_t what = in.byte();
    switch (what % 16) {
      case 0:
      case 1:
      case 2: return speak_as_holder(in);
      case 3:
      case 4:
      case 5: return answer(in);
      case 6: return speak_as_owner(in);
      case 7:
      case 8:
      case 9: return program_->act(in);
      case 10: return drive();
      case 11: return pass_time(in);
      case 12: return reach(in);
      case 13:
        if (!is_gentle_ && !said_.empty() && can_say()) put(said_[in.byte() % said_.size()]);
        return;
      case 14: is_mute_ = in.byte() % 4 == 0; return;
      case 15: return babble(in);
    }
  }

  void pass_time(script& in) {
    constexpr std::array<duration, 8> steps{1ms, 60ms, 200ms, 400ms, 1001ms, 2001ms, 10s, 61s};
    drive();
    world_.clock.advance(in.of(steps));
    drive();
  }

  frame requested(script& in) {
    constexpr std::array<std::uint64_t, 8> sizes{
        64, 1, 4096, 100, bytes_max / 4, bytes_max, bytes_max + 1, ~std::uint64_t{0}};
    constexpr std::array<microseconds, 4> leases{10s, 1us, 24h, 100ms};
    const std::uint8_t how = in.byte();
    return {.kind = kind::request,
            .tag = how % 8 == 7 ? 1 : ++next_tag_,
            .length = in.of(sizes),
            .access = how % 4 == 3 ? access::remote_read : lending_policy::lendable_access,
            .duration = in.of(leases),
            .alignment_log2 = std::uint8_t(!is_gentle_ && how % 64 == 5 ? 21 : how / 16 % 13)};
  }

  void speak_as_holder(script& in) {
    constexpr std::array kinds{kind::request, kind::give_back, kind::request, kind::renew,
                               kind::accept,  kind::hand_over, kind::request, kind::give_back};
    const kind k = in.of(kinds);
    if (k == kind::request) return static_cast<void>(say(requested(in), in));
    frame f{.kind = k, .tag = ++next_tag_, .lease = in.byte()};
    const std::uint8_t which = in.byte();
    key* of = nullptr;
    if (!keys_.empty()) {
      of = &keys_[keys_.size() - 1 - which % keys_.size()];
      f.lease = of->terms.lease;
      // A granted lease has our tag; an offered lease, the tag with which we accept it.
      if (k == kind::accept && of->terms.tag == 0) of->terms.tag = f.tag;
      f.tag = std::max<std::uint64_t>(of->terms.tag, 1);
    }
    f.lease = std::max<std::uint64_t>(f.lease, 1);
    if (k == kind::renew) f.duration = 5s;
    if (k == kind::give_back) {
      f.tag = 0;
      f.status = which % 8 == 0 ? std::uint32_t(errc::lease_expired) : which % 16 == 1 ? 12345 : 0;
    }
    if (say(f, in) && k == kind::give_back && of != nullptr && !of->is_over)
      leaving_.push_back(of->terms.rkey);
  }

  frame terms(script& in, std::uint64_t length, access granted, microseconds lease) {
    our_leases_.push_back(++next_lease_);
    return {.lease = next_lease_,
            .length = length,
            .address = peer_->address(),
            .rkey = !is_gentle_ && in.byte() % 8 == 7 ? 0xffffffff : peer_->rkey(),
            .access = granted,
            .duration = lease,
            .isolation = std::uint8_t(isolation::exact)};
  }

  void answer(script& in) {
    drive();
    const std::uint8_t how = in.byte();
    frame f;
    frame asked{.kind = kind::request,
                .tag = 1,
                .length = 64,
                .access = lending_policy::lendable_access,
                .duration = 1s};
    if (is_gentle_ && questions_.empty()) return;
    if (!questions_.empty() && (is_gentle_ || how % 16 != 15)) {
      const auto at = questions_.begin() + how / 16 % std::ptrdiff_t(questions_.size());
      asked = *at;
      if (is_gentle_ || how % 8 != 7) questions_.erase(at);
    }
    kind k = asked.kind == kind::request ? kind::granted
             : asked.kind == kind::renew ? kind::renewed
                                         : kind::handed_over;
    if (how % 8 == 1) k = kind::refused;
    if (!is_gentle_ && how % 16 == 2)
      k = in.of(std::array{kind::granted, kind::renewed, kind::handed_over});
    if (k == kind::granted)
      f = terms(in, std::max<std::uint64_t>(asked.length, 1),
                asked.access == access::none ? lending_policy::lendable_access : asked.access,
                asked.duration);
    f.kind = k;
    f.tag = asked.tag;
    if (k == kind::renewed) f.duration = std::max<microseconds>(asked.duration, 1us);
    if (k == kind::refused) {
      f.status = in.of(std::array{std::uint32_t(errc::refused), std::uint32_t(errc::limit_exceeded),
                                  std::uint32_t(errc::lease_ended), 0x80000000u});
      f.length = in.byte();
    }
    if (k == kind::granted && how % 32 == 4) f.duration = 1us;
    say(f, in);
  }

  void speak_as_owner(script& in) {
    const std::uint8_t how = in.byte();
    frame f;
    if (how % 2 == 0 || our_leases_.empty()) {
      f = terms(in, in.of(std::array<std::uint64_t, 4>{64, 1, 4096, ~std::uint64_t{0} >> 1}),
                lending_policy::lendable_access,
                in.of(std::array<microseconds, 4>{10s, 300ms, 1us, 24h}));
      f.kind = kind::offer;
      if (how % 16 == 2 && our_leases_.size() > 1) f.lease = our_leases_.front();
    } else {
      f = {.kind = kind::revoke, .lease = our_leases_[how / 2 % our_leases_.size()]};
      for (const frame& accepted : tags_)
        if (accepted.lease == f.lease && how % 4 == 1) f.tag = accepted.tag;
    }
    say(f, in);
  }

  /// Sends the frame, now and then with a few bytes changed, and remembers the bytes.
  bool say(const frame& f, script& in) {
    if (!can_say()) {
      drive();
      if (!can_say()) return false;
    }
    const std::uint8_t how = is_gentle_ ? 0 : in.byte();
    frame_bytes message;
    frame sent = f;
    sent.taken = peer_->taken;
    if (how == 0xfe) sent.taken += in.byte();
    if (!is_mute_) told_ = peer_->taken;
    if (is_mute_) sent.taken = told_;
    message = agent_protocol::encode(sent);
    bool is_honest = how != 0xfe;
    if (how >= 0xf0 && how < 0xf8) {
      is_honest = false;
      for (unsigned n = 0; n <= how % 2u; ++n) {
        std::byte& lie = message[in.byte() % message.size()];
        lie ^= std::byte{in.byte()};
      }
    }
    if (said_.size() < 64)
      said_.push_back(message);
    else
      said_[next_said_++ % said_.size()] = message;
    put(message);
    return is_honest;
  }
  using frame_bytes = agent_protocol::frame_bytes_t;

  /// Seldom sends bytes of any kind and length, which end the connection.
  void babble(script& in) {
    if (is_gentle_ || in.byte() % 8 != 0 || !can_say()) return;
    std::array<std::byte, test::hostile_peer::message_bytes_max> message{};
    const std::size_t size = in.byte() % (message.size() + 1);
    for (std::size_t n = 0; n < size && !in.done(); ++n) message[n] = std::byte{in.byte()};
    put(std::span{message}.first(size),
        in.byte() % 4 == 0 && size == 0 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND);
  }

  /// Reads or writes what it was told of, as it was told or not quite.
  void reach(script& in) {
    drive();
    if (victim_->is_cut_off()) return;
    const std::vector<std::uint32_t> left = std::exchange(leaving_, {});
    for (key& k : keys_)
      if (std::ranges::find(left, k.terms.rkey) != left.end()) k.is_over = true;
    if (keys_.empty()) return;
    const std::uint8_t how = in.byte() & (is_gentle_ ? 0xc0 : 0xff);
    const key& k = keys_[keys_.size() - 1 - in.byte() % keys_.size()];
    std::uint64_t address = k.terms.address;
    std::uint32_t length = std::uint32_t(std::min<std::uint64_t>(k.terms.length, 4096));
    if (how % 16 == 1) address += 1;
    if (how % 16 == 2) address -= 1;
    if (how % 16 == 3) address += in.take<std::uint16_t>();
    if (how % 16 == 4) length = in.take<std::uint16_t>() % 4097;
    const std::uint32_t rkey = how % 32 == 5 ? k.terms.rkey ^ in.byte() : k.terms.rkey;
    const bool writes = how >= 0x80;
    const access wanted = writes ? access::remote_write : access::remote_read;
    if (is_gentle_ && (k.is_over || !verbs::allows(k.terms.access, wanted))) return;
    std::ranges::fill(peer_->landing(), std::byte{0x3c});
    peer_->reach(writes ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, address, length, rkey);
    // The answer first: the victim may meanwhile give nothing.
    peer_->listen();
    hear();
    must(peer_->reached.has_value(), "the device answers");
    if (*peer_->reached != IBV_WC_SUCCESS) {
      was_refused_ = true;  // The device says so to the victim: its queue pair is in ERROR.
      return drive();
    }
    if (length == 0) return;
    must(std::ranges::any_of(keys_,
                             [&](const key& one) {
                               const frame& t = one.terms;
                               return !one.is_over && t.rkey == rkey && address >= t.address &&
                                      address + length <= t.address + t.length &&
                                      verbs::allows(t.access, wanted);
                             }),
         "only what is lent is reached");
    if (!writes)
      must(std::ranges::find(peer_->landing().first(length), secret) ==
               peer_->landing().begin() + length,
           "nothing else is seen");
  }

  test::agent_world world_;
  std::array<local_mr, 8> secrets_;
  std::size_t in_use_at_first_ = 0;
  std::size_t in_use_idle_ = 0;
  std::optional<test::victim> victim_;
  std::optional<test::hostile_peer> peer_;
  std::optional<victim_program> program_;
  unsigned executions_ = 0;

  // The knowledge of the peer.
  std::vector<key> keys_;
  std::vector<frame> questions_;
  std::vector<frame> tags_;
  std::vector<std::uint64_t> our_leases_;
  std::vector<std::uint32_t> leaving_;  ///< Keys whose leases it said that it returns.
  std::vector<frame_bytes> said_;
  std::size_t next_said_ = 0;
  std::uint64_t next_tag_ = 100;
  std::uint64_t next_lease_ = 100;
  std::uint32_t told_ = 0;
  std::uint32_t in_flight_ = 0;  ///< Messages that the victim has not taken yet, at most.
  bool is_gentle_ = false;
  bool is_mute_ = false;
  bool was_refused_ = false;
};

}  // namespace
}  // namespace cordma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  // Never destroyed: the process ends with the fuzzer, its device's engine at work.
  static auto& stage = *new cordma::fuzz::stage;
  cordma::fuzz::script in{bytes, size};
  stage.run(in);
  return 0;
}
