#include "control_channel.hpp"

#include <cordma/detail/agent/agent.hpp>

#include <cstdlib>
#include <span>

namespace cordma {
namespace {

using agent_protocol::credits;
using agent_protocol::frame_bytes;

/// Twice the credits: the peer may have taken a frame before its completion is reaped.
constexpr std::uint32_t send_depth = 2 * credits;
/// Of so many frames the last has a completion entry, which ends them all.
constexpr std::uint32_t signal_interval = 16;
constexpr verbs::queue_pair_capabilities capabilities{.send_wr_max = send_depth,
                                                      .recv_wr_max = credits,
                                                      .send_sge_max = 1,
                                                      .recv_sge_max = 1,
                                                      .inline_max = frame_bytes};
static_assert(capabilities.send_wr_max + capabilities.recv_wr_max == agent::completion_entries);

request_outcome refused(int rc, const char* call) noexcept {
  return {.code = {std::abs(rc), std::system_category()}, .call = call};
}

}  // namespace

control_channel::control_channel(completion_queue_driver& driver, verbs::protection_domain& pd,
                                 mr_allocator& memory, listener& up)
    : queue_pair_base{driver, pd, capabilities},
      waiter{&on_turn},
      up_{up},
      memory_{memory.allocate_zeroed(credits * frame_bytes)},
      buffers_{reinterpret_cast<buffer*>(memory_.bytes().data())},
      piece_{.addr = 0, .length = frame_bytes, .lkey = memory_.slice().lkey()} {
  send_.sg_list = receive_.sg_list = &piece_;
  send_.num_sge = receive_.num_sge = 1;
  send_.opcode = IBV_WR_SEND;
  for (unsigned slot = 0; slot < credits; ++slot) {
    answers_[slot].home = this;
    answers_[slot].slot = slot;
    answers_[slot].on_sent = &on_answer_sent;
  }
}

control_channel::~control_channel() {
  verbs().destroy();  // Before the memory, which its requests do not hold.
  driver().tally().failed(request_kind::agent_send, sent_ - ended_);
  driver().tally().failed(request_kind::agent_receive, posted_);
  settled_.set();
}

void control_channel::post_receives() {
  for (unsigned slot = 0; slot < credits; ++slot) post_receive(slot);
  if (has_failed()) throw error{failure_reason().to_failure(verbs().num())};
}

void control_channel::post_receive(unsigned slot) noexcept {
  piece_.addr = reinterpret_cast<std::uint64_t>(&buffers_[slot]);
  receive_.wr_id = receive_id_base() | slot;
  ibv_recv_wr* bad = nullptr;
  const int rc = verbs().post_recv(&receive_, &bad);
  if (rc != 0) return fail(refused(rc, "ibv_post_recv"));
  ++posted_;
  driver().tally().posted(request_kind::agent_receive);
}

void control_channel::start() noexcept {
  is_running_ = true;
  // The peer may have started before us: the receives came to be used in their order.
  for (unsigned slot = 0; is_running_ && slot < early_; ++slot) take(slot, early_sizes_[slot]);
  pump();
}

void control_channel::stop() noexcept {
  is_running_ = false;
  for (list* all : {&notices_, &waiting_questions_, &later_})
    while (!all->empty()) all->pop_front();
  settled_.set();
}

void control_channel::complete(bool is_receive, std::uint32_t sequence, const ibv_wc& wc) noexcept {
  transfer_tally& tally = driver().tally();
  if (is_receive) --posted_;
  if (wc.status != IBV_WC_SUCCESS) {
    if (is_receive) tally.failed(request_kind::agent_receive);
    if (wc.status == IBV_WC_RNR_RETRY_EXC_ERR) tally.exceeded_rnr();
    return fail({.code = wc_errc(wc.status), .call = "ibv_poll_cq", .vendor = wc.vendor_err});
  }
  if (is_receive) {
    tally.completed(request_kind::agent_receive);
    return take(sequence, wc.opcode == IBV_WC_RECV ? wc.byte_len : 0);
  }
  tally.completed(request_kind::agent_send, sequence + 1 - ended_);
  ended_ = sequence + 1;
  pump(true);
}

void control_channel::take(unsigned slot, std::size_t size_bytes) noexcept {
  if (!is_running_) {
    if (early_ < credits) early_sizes_[early_++] = size_bytes;
    return;
  }
  try {
    const frame f = agent_protocol::decode(std::span{buffers_[slot]}.first(size_bytes));
    take_credits(f);
    if (f.kind == agent_protocol::kind::credit)
      release(slot);
    else
      up_.on_frame(f, slot);
    pump(true);
  } catch (const error& e) {
    is_running_ = false;
    up_.on_bad_frame(e.failure());
  }
}

void control_channel::take_credits(const frame& f) {
  if (f.taken - taken_by_peer_ > under_way())
    throw error{{.code = errc::bad_frame, .call = "agent", .detail = "took what was not sent"}};
  taken_by_peer_ = f.taken;
  if (!agent_protocol::is_answer(f.kind)) return;
  if (questions_ == 0)
    throw error{{.code = errc::bad_frame, .call = "agent", .detail = "answers what was not asked"}};
  --questions_;
}

void control_channel::send(outgoing& o) noexcept {
  (agent_protocol::is_question(o.frame.kind) ? waiting_questions_ : notices_).push_back(o);
  pump();
}

void control_channel::send_later(outgoing& o) noexcept {
  later_.push_back(o);
  executor& home = driver().home();
  if (!home.is_running()) return pump(true);
  if (waiter& turn = *this; !turn.is_linked()) home.schedule_last(turn);
}

std::coroutine_handle<> control_channel::on_turn(waiter& self) noexcept {
  static_cast<control_channel&>(self).pump(true);
  return std::noop_coroutine();
}

void control_channel::reply(unsigned slot, const frame& f) noexcept {
  answers_[slot].frame = f;
  send(answers_[slot]);
}

void control_channel::on_answer_sent(outgoing& o) noexcept {
  const auto& sent = static_cast<answer&>(o);
  sent.home->release(sent.slot);
}

void control_channel::release(unsigned slot) noexcept {
  post_receive(slot);
  ++taken_;
}

bool control_channel::may_send(std::uint32_t under_way_max) const noexcept {
  return is_running_ && under_way() < under_way_max && sent_ - ended_ < send_depth;
}

control_channel::outgoing* control_channel::next(bool later_too) noexcept {
  if (!notices_.empty()) return &notices_.front();
  if (!waiting_questions_.empty() && questions_ < agent_protocol::questions_max)
    return &waiting_questions_.front();
  return later_too && !later_.empty() ? &later_.front() : nullptr;
}

/// The last credit is for telling credits: else two sides that have none left would both wait.
void control_channel::pump(bool later_too) noexcept {
  while (outgoing* const o = next(later_too)) {
    if (!may_send(credits - 1)) break;
    o->unlink();
    if (agent_protocol::is_question(o->frame.kind)) ++questions_;
    post(o->frame);
    if (o->on_sent != nullptr) o->on_sent(*o);
  }
  if (taken_ - told_ >= credits / 2 && may_send(credits)) {
    frame f{.kind = agent_protocol::kind::credit};
    post(f);
  }
  settle();
}

void control_channel::post(frame& f, bool signaled) noexcept {
  f.taken = told_ = taken_;
  const buffer from = agent_protocol::encode(f);
  piece_.addr = reinterpret_cast<std::uint64_t>(&from);  // Inline: copied when it is posted.
  send_.wr_id = send_id_base() | sent_;
  send_.send_flags = IBV_SEND_INLINE;
  if (signaled || sent_ % signal_interval == signal_interval - 1) {
    send_.send_flags |= IBV_SEND_SIGNALED;
    last_signaled_ = sent_;
  }
  ++sent_;
  driver().tally().posted(request_kind::agent_send);
  ibv_send_wr* bad = nullptr;
  if (const int rc = verbs().post_send(&send_, &bad); rc != 0) fail(refused(rc, "ibv_post_send"));
}

event::wait_op control_channel::settled() noexcept {
  settled_.reset();
  is_settling_ = true;
  pump(true);
  if (!is_running_ || has_failed()) settled_.set();
  return settled_.wait();
}

/// Nothing waits, and all that was sent has ended; else a last frame has the device say when.
void control_channel::settle() noexcept {
  if (!is_settling_ || !notices_.empty() || !later_.empty()) return;
  if (ended_ == sent_) return settled_.set();
  if (last_signaled_ == sent_ - 1 || !may_send(credits)) return;
  frame last{.kind = agent_protocol::kind::credit};
  post(last, true);
}

}  // namespace cordma
