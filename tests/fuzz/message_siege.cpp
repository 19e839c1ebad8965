#include "message_siege.hpp"

#include "queue/send_queue.hpp"
#include "support/held.hpp"

#include <algorithm>

namespace cordma::fuzz {

using namespace std::chrono_literals;

message_siege::message_siege() {
  static_cast<void>(world_.lending.strongest(world_.executor, world_.port, world_.gid));
  in_use_at_first_ = test::held_by(world_.memory).memory_bytes;
}

void message_siege::run(script& in) {
  constexpr int acts_max = 48;         // acts of a script, at most
  constexpr unsigned rough_every = 4;  // one execution in so many lies: lies soon end a connection
  const std::uint8_t how = in.byte();
  is_gentle_ = how % rough_every != 0;
  come(how % 16 >= 8 ? &pool_ : nullptr);
  if (how / 16 != 0) tell_terms(in);
  for (int n = 0; n < acts_max && !in.done() && !victim_->is_cut_off(); ++n) perform(in);
  drive();
  if (how % 2 == 1) pass();
  if (!victim_->is_cut_off()) victim_->cut_off(errc::closed);
  depart();
}

// ---- lives

void message_siege::come(shared_receives* pool) {
  of_victim_.depth = pool != nullptr ? 2 * depth : depth;
  victim_.emplace(world_, agent_options{}, pool);
  peer_.emplace(world_, *victim_);
  peer_->listen_to_data();
  open({.data = victim_->data(),
        .agent = victim_->self(),
        .memory = world_.memory,
        .read_bytes_max = 1024});
  announced_.clear();
  next_tag_ = answered_ = 0;
  told_ = granted_ = asked_ = 0;
  has_terms_ = has_time_passed_ = is_shrinking_ = false;
  drive();
}

/// Lets the waits end; what is lent or borrowed comes back by time only.
void message_siege::pass() {
  give_up();
  for (int n = 0; n < 3; ++n) {
    drive();
    world_.clock.advance(1min);
    tell_credit();
  }
  drive();
  must_be_over();
  if (victim_->is_cut_off()) return;
  must(test::held_by(victim_->self()) == test::nothing, "nothing is lent or borrowed");
}

/// The connection has ended: so has all that waited, and all is back.
void message_siege::depart() {
  drive();
  must_be_over();
  drive();
  must(test::held_by(victim_->self()) == test::nothing,
       "after the connection nothing is lent, borrowed or stranded");
  leave();
  peer_.reset();
  victim_.reset();
  forget();
  while (world_.iterate() > 0) {
  }  // The driver has to see its queue empty.
  must(test::held_by(pool_, world_.memory) == test::held{.memory_bytes = in_use_at_first_},
       "after the connection all memory and all shared buffers are back");
}

// ---- turns

void message_siege::drive() {
  constexpr int rounds_max = 400;
  int n = 0;
  for (; n < rounds_max; ++n) {
    std::size_t did = world_.iterate();
    did += peer_->listen();
    hear_all();
    collect();
    if (did == 0) break;
  }
  must(n < rounds_max, "it comes to rest");
  in_flight_ = data_in_flight_ = 0;
  if (!victim_->is_cut_off()) check();
}

void message_siege::check() {
  if (const receive_share* const share = victim_->data().share()) {
    must(share->held() <= share->credit(), "no more is held than was allowed");
    must(share->credit() <= of_victim_.depth, "no more is allowed than the stream's depth");
  } else {
    must(receives_posted() <= depth, "no more receives than buffers");
  }
  must(victim_->self().context.counters.borrowed <= 2 * depth,
       "no more is borrowed than was expected");
}

std::uint32_t message_siege::receives_posted() {
  if (const receive_share* const share = victim_->data().share())
    return pool_.buffers() - share->held();
  return victim_->data().slots_in_use() - victim_->data().sends().in_flight();
}

/// Tells whether the victim has a receive: without one, the device would try again, in real time.
bool message_siege::can_say() {
  return !victim_->is_cut_off() && victim_->control().posted_recvs() > in_flight_;
}

bool message_siege::can_say_data() {
  return !victim_->is_cut_off() && receives_posted() > data_in_flight_;
}

void message_siege::hear(const test::heard_frame& f) {
  if (f.kind == kind::announce) announced_.push_back(f);
  if (f.kind == kind::taken) ++answered_;
  if (f.kind == kind::shrink) asked_ = f.messages;
  if (f.kind != kind::shrunk) return;
  must(std::exchange(is_shrinking_, false) || !is_gentle_, "only what is asked for is confirmed");
  must(f.messages <= granted_ || !is_gentle_, "nobody shrinks to more");
  granted_ = f.messages;
}

void message_siege::hear_all() {
  for (const test::heard_frame& f : peer_->heard_data) hear(f);
  peer_->heard_data.clear();
  peer_->heard.clear();
}

void message_siege::tell(const agent_frame& f) {
  if (!can_say()) drive();
  if (!can_say()) return;
  ++in_flight_;
  peer_->say(f);
}

// ---- what the peer does

void message_siege::act(unsigned what, script& in) {
  switch (what % acts) {
    case 0:
    case 1: return announce(in);
    case 2: return read_announced(in);
    case 3:
    case 4: return answer_announced(in);
    case 5: return say({.kind = kind::withdraw, .tag = 1 + in.byte() % (next_tag_ + 1)}, in);
    case 6: return say({.kind = kind::credit}, in);
    case 7: return drive();
    case 8: return pass_time(in);
    case 9: return babble(in);
    case 10: return change_credit(in);
  }
}

void message_siege::tell_terms(script& in) {
  constexpr std::array<std::uint64_t, 4> messages{8, 9, 32, 7};
  constexpr std::array<std::uint64_t, 4> buffers{64, 100, 64, ~std::uint64_t{0}};
  const std::uint8_t how = is_gentle_ ? 0 : in.byte();
  if (std::exchange(has_terms_, true) && is_gentle_) return;
  granted_ = std::uint32_t(messages[how % 4]);
  tell({.kind = agent_kind::note,
        .tag = messages[how % 4],
        .lease = buffers[how / 4 % 4],
        .length = how / 16 == 1 ? 10 : std::max<std::uint64_t>(large_max, buffers[how / 4 % 4])});
}

/// Tells more credit or less, or another share wants what the peer has.
void message_siege::change_credit(script& in) {
  const std::uint8_t how = in.byte();
  const std::uint32_t number = how / 4;
  drive();
  if (victim_->is_cut_off() || (is_gentle_ && !has_terms_)) return;
  receive_share* const share = victim_->data().share();
  switch (how % 4) {
    case 0: {
      const std::uint32_t more = granted_ + number % 16 + (is_gentle_ ? 1 : 0);
      constexpr std::uint32_t heard_max = test::hostile_peer::data_receives - 8;
      if (more > heard_max || (is_gentle_ && is_shrinking_)) return;
      granted_ = more;
      return say({.kind = kind::grant, .messages = more}, in);
    }
    case 1:
      if (is_gentle_ && (is_shrinking_ || granted_ <= depth)) return;
      is_shrinking_ = true;
      return say({.kind = kind::shrink, .messages = is_gentle_ ? depth : number}, in);
    case 2:
      if (!is_gentle_) return say({.kind = kind::shrunk, .messages = number}, in);
      if (asked_ == 0) return;
      // A gentle peer keeps credit for what is not taken, and for so many messages more.
      return say({.kind = kind::shrunk,
                  .messages = std::min(std::exchange(asked_, 0) + share->held(), share->credit())},
                 in);
    case 3: {
      if (share == nullptr) return;
      receive_share other{pool_};
      std::uint32_t all = other.credit();
      while (const std::uint32_t more = other.want(pool_.buffers())) all += more;
      return must(all < pool_.buffers(), "nobody gets all");
    }
  }
}

/// The victim reads from a landing what the last announcement put there. A gentle peer announces
/// only when the announcement before is answered.
void message_siege::announce(script& in) {
  constexpr std::array<std::uint64_t, 4> lies{0, 64, large_max + 1, ~std::uint64_t{0}};
  const std::uint8_t how = is_gentle_ ? 0 : in.byte();
  drive();
  if (!can_say_data() || (is_gentle_ && answered_ < next_tag_)) return;
  fill(peer_->landing(), in);
  loan_terms loan{
      .address = peer_->address(), .length = in.of(large_lengths), .rkey = peer_->rkey()};
  switch (how % 16) {
    case 1: loan.length = lies[how / 16 % 4]; break;
    case 2: loan.rkey = ~loan.rkey; break;
    case 3: loan.isolation = isolation(how / 16); break;
    case 4: loan.address = ~std::uint64_t{0} - how; break;
  }
  const std::uint64_t tag = how % 16 == 5 ? 1 : ++next_tag_;
  say({.kind = kind::announce, .tag = tag, .loan = loan}, in);
}

message_siege::frame message_siege::one_announced(script& in) const {
  const std::uint8_t which = in.byte();
  if (announced_.empty() || (!is_gentle_ && which % 16 == 15)) return {.tag = 1u + which};
  return announced_[which % announced_.size()];
}

/// Reads memory that the victim lends.
void message_siege::read_announced(script& in) {
  drive();
  if (victim_->is_cut_off() || announced_.empty()) return;
  const frame f = one_announced(in);
  const bool is_lent = victim_->self().context.counters.open > 0 && !has_time_passed_;
  if (is_gentle_ && (!is_lent || answered_ < next_tag_)) return;
  peer_->reach(IBV_WR_RDMA_READ, f.loan.address,
               std::uint32_t(std::min<std::uint64_t>(f.loan.length, large_max)), f.loan.rkey);
}

/// Answers that the peer has the message, or does not want it. The victim's window may end with the
/// answer.
void message_siege::answer_announced(script& in) {
  const frame f = one_announced(in);
  const std::uint8_t how = in.byte();
  std::optional<std::uint32_t> key;
  if (how % 2 == 1 && (!is_gentle_ || !has_time_passed_)) key = f.loan.rkey;
  if (!is_gentle_ && how % 16 == 3) key = how;
  if (is_gentle_) {  // Each message is answered once.
    const auto same = [&](const frame& one) { return one.tag == f.tag; };
    if (std::erase_if(announced_, same) == 0) return;
  }
  say({.kind = kind::taken, .tag = f.tag, .status = how / 16 % 4u}, in, {}, key);
}

void message_siege::say(frame f, script& in, std::span<const std::byte> payload,
                        std::optional<std::uint32_t> invalidated) {
  if (!can_say_data()) drive();
  if (!can_say_data()) return;
  const std::uint8_t how = in.byte();
  f.taken = how % 4 == 3 ? told_ : (told_ = peer_->data_taken);
  if (!is_gentle_ && how >= 0xf8) f.taken += in.byte();
  std::array<std::byte, test::hostile_peer::message_bytes_max> message{};
  const auto head = message_protocol::encode(f);
  std::size_t size = message_protocol::size_of(f.kind);
  std::ranges::copy(std::span{head}.first(size), message.begin());
  std::ranges::copy(payload, message.begin() + std::ptrdiff_t(size));
  size += payload.size();
  if (!is_gentle_ && how >= 0xe0 && how < 0xe8) message[in.byte() % size] ^= std::byte{in.byte()};
  if (!is_gentle_ && how >= 0xe8 && how < 0xf0) size = in.byte() % 100;
  put(std::span{message}.first(size), invalidated ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND,
      invalidated.value_or(0));
}

void message_siege::put(std::span<const std::byte> message, ibv_wr_opcode how, std::uint32_t rkey) {
  ++data_in_flight_;
  peer_->say_data(message, how, rkey);
}

void message_siege::pass_time(script& in) {
  constexpr std::array<duration, 8> steps{1ms, 60ms, 200ms, 400ms, 1001ms, 2001ms, 10s, 61s};
  drive();
  has_time_passed_ = true;  // Leases may be over, too.
  world_.clock.advance(in.of(steps));
  drive();
}

/// Sends bytes of any kind and length, terms once more, or a WRITE. Mostly the connection ends.
void message_siege::babble(script& in) {
  if (is_gentle_) return tell_terms(in);
  const std::uint8_t how = in.byte();
  if (how % 8 == 0) return tell_terms(in);
  if (how % 8 > 2 || !can_say_data()) return;
  if (how % 8 == 1) return put({}, IBV_WR_RDMA_WRITE_WITH_IMM);
  std::array<std::byte, test::hostile_peer::message_bytes_max> message{};
  const std::size_t size = in.byte() % (message.size() + 1);
  for (std::size_t n = 0; n < size && !in.done(); ++n) message[n] = std::byte{in.byte()};
  put(std::span{message}.first(size));
}

}  // namespace cordma::fuzz
