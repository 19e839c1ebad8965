#include "control_channel.hpp"

#include "agent.hpp"
#include "base/caught.hpp"
#include "queue/send_queue.hpp"

#include <span>

namespace cordma {
namespace {

using agent_protocol::credits;
using agent_protocol::frame_bytes;

/// The send queue gives each sixteenth frame a CQE, as half of its depth may be unsignaled. When
/// frames fill the queue, one of them thus ends.
constexpr verbs::queue_pair_capabilities capabilities{.send_wr_max = credits,
                                                      .recv_wr_max = credits,
                                                      .send_sge_max = 1,
                                                      .recv_sge_max = 1,
                                                      .inline_max = frame_bytes};
static_assert(capabilities.send_wr_max + capabilities.recv_wr_max == agent::cqes_max);

constexpr queue_pair_role role{.has_atomics = false,
                               .sends = request_kind::agent_send,
                               .receives = request_kind::agent_receive};

}  // namespace

control_channel::control_channel(completion_queue_driver& driver, verbs::protection_domain& pd,
                                 mr_allocator& memory, listener& up)
    : waiter{[](waiter& iteration_end) noexcept -> std::coroutine_handle<> {
        static_cast<control_channel&>(iteration_end).pump(true);
        return std::noop_coroutine();
      }},
      up_{up},
      memory_{memory.allocate_zeroed(credits * frame_bytes)},
      buffers_{reinterpret_cast<buffer*>(memory_.bytes().data())},
      qp_{driver, pd, capabilities, 0, nullptr, role} {
  qp_.hand_messages_to(*this);
  for (unsigned slot = 0; slot < credits; ++slot) {
    answers_[slot].channel = this;
    answers_[slot].slot = slot;
    answers_[slot].on_sent = [](outgoing& o) noexcept {
      const auto& sent = static_cast<answer&>(o);
      sent.channel->release(sent.slot);
    };
  }
}

control_channel::~control_channel() { settled_.set(); }

void control_channel::post_receives() {
  post_receives(0, credits);
  if (qp_.has_failed()) throw error{qp_.failure_reason().to_failure(qp_.verbs().num())};
}

void control_channel::post_receives(unsigned first, unsigned count) noexcept {
  std::array<ibv_sge, credits> pieces;
  std::array<ibv_recv_wr, credits> receives;
  for (unsigned n = 0; n < count; ++n) {
    pieces[n] = {.addr = reinterpret_cast<std::uint64_t>(&buffers_[first + n]),
                 .length = frame_bytes,
                 .lkey = memory_.slice().lkey()};
    receives[n] = {.wr_id = first + n, .next = nullptr, .sg_list = &pieces[n], .num_sge = 1};
  }
  qp_.post_recvs(std::span{receives}.first(count));
}

void control_channel::stop() noexcept {
  is_running_ = false;
  for (list* all : {&notices_, &waiting_questions_, &later_})
    while (!all->empty()) all->pop_front();
  settled_.set();
}

void control_channel::on_receive(std::uint32_t slot, const ibv_wc& wc) noexcept {
  if (wc.status != IBV_WC_SUCCESS) return;
  take(slot, wc.opcode == IBV_WC_RECV ? wc.byte_len : 0);
}

bool control_channel::on_room() noexcept {
  pump(true);
  return false;
}

void control_channel::take(unsigned slot, std::size_t size_bytes) noexcept {
  if (!is_running_) return;
  try {
    const frame f = agent_protocol::decode(std::span{buffers_[slot]}.first(size_bytes));
    take_credits(f);
    if (f.kind == agent_protocol::kind::credit)
      release(slot);
    else
      up_.on_frame(f, slot);
    pump(true);
  } catch (...) {
    is_running_ = false;
    up_.on_bad_frame(caught("agent"));
  }
}

void control_channel::take_credits(const frame& f) {
  if (f.taken - taken_by_peer_ > in_flight())
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
  executor& owner = qp_.driver().executor();
  if (!owner.is_running()) return pump(true);
  if (waiter& iteration_end = *this; !iteration_end.is_linked()) owner.schedule_last(iteration_end);
}

void control_channel::reply(unsigned slot, const frame& f) noexcept {
  answers_[slot].frame = f;
  send(answers_[slot]);
}

void control_channel::release(unsigned slot) noexcept {
  post_receives(slot, 1);
  ++taken_;
}

bool control_channel::may_send(std::uint32_t in_flight_max) const noexcept {
  return is_running_ && in_flight() < in_flight_max && qp_.can_post_detached();
}

control_channel::outgoing* control_channel::next() noexcept {
  if (!notices_.empty()) return &notices_.front();
  if (!waiting_questions_.empty() && questions_ < agent_protocol::questions_max)
    return &waiting_questions_.front();
  return sends_later_ && !later_.empty() ? &later_.front() : nullptr;
}

/// A callback may send more, as may one of the data queue pair, whose doorbell a frame rings first.
/// Such frames are left to the call that is under way, so that frames go in the order in which
/// their credits were counted. The last credit is for telling credits: else two sides that have
/// none left would both wait.
void control_channel::pump(bool later_too) noexcept {
  sends_later_ |= later_too;
  if (is_pumping_) return;
  is_pumping_ = true;
  do {
    while (next() != nullptr && may_send(credits - 1)) send_next(*next());
    if (taken_ - told_ >= credits / 2 && may_send(credits)) {
      frame f{.kind = agent_protocol::kind::credit};
      post(f);
    }
    settle();
  } while (next() != nullptr && may_send(credits - 1));
  is_pumping_ = sends_later_ = false;
}

void control_channel::send_next(outgoing& o) noexcept {
  o.unlink();
  if (agent_protocol::is_question(o.frame.kind)) ++questions_;
  // The peer may be gone once it has the last frame: no other frame is to ask for a completion.
  const bool is_last = is_settling_ && notices_.empty() && later_.empty();
  post(o.frame, is_last ? unsigned{IBV_SEND_SIGNALED} : 0);
  if (o.on_sent != nullptr) o.on_sent(o);
}

/// The frame goes inline: the device has read it when this returns.
void control_channel::post(frame& f, unsigned send_flags) noexcept {
  f.taken = told_ = taken_;
  buffer bytes = agent_protocol::encode(f);
  const const_local_mr_slice piece = local_mr_slice{bytes.data(), bytes.size(), nullptr, 0, 0};
  const wr_summary request{.kind = request_kind::agent_send,
                           .opcode = IBV_WR_SEND,
                           .send_flags = send_flags,
                           .local = {&piece, 1}};
  ibv_send_wr wr;
  ibv_sge sge;
  ++sent_;
  // Refused by the device, the queue pair has failed, and so has the connection.
  static_cast<void>(qp_.post_detached({{&request, 1}, &wr, &sge}));
}

event::wait_op control_channel::settled() noexcept {
  settled_.reset();
  is_settling_ = true;
  pump(true);
  if (!is_running_ || qp_.has_failed()) settled_.set();
  return settled_.wait();
}

/// Not `callback_queue_pair::sends_idle`, which knows nothing of frames that wait for credits.
void control_channel::settle() noexcept {
  if (!is_settling_ || !notices_.empty() || !later_.empty()) return;
  if (qp_.sends().is_idle()) return settled_.set();
  on_idle_awaited();
}

void control_channel::on_idle_awaited() noexcept {
  if (!qp_.sends().will_end_all()) post_signaled();
}

bool control_channel::probe() noexcept {
  const bool is_due = !qp_.sends().is_idle() && qp_.sends().will_end_all();
  // Other frames may have been sent, and answered, since the last probe.
  if (is_due && sent_ == probed_) return false;
  if (!is_due) post_signaled();
  probed_ = sent_;
  return true;
}

void control_channel::post_signaled() noexcept {
  if (!may_send(credits)) return;
  frame last{.kind = agent_protocol::kind::credit};
  post(last, IBV_SEND_SIGNALED);
}

}  // namespace cordma
