#include "control_channel.hpp"

#include <cordma/agent/agent.hpp>

#include <algorithm>

namespace cordma {
namespace {

using agent_protocol::credits;
using agent_protocol::frame_bytes;

/// Twice the credits: the peer may have taken a frame before its completion is reaped.
constexpr std::uint32_t send_buffers = 2 * credits;
constexpr verbs::queue_pair_capabilities capabilities{.send_wr_max = send_buffers,
                                                      .recv_wr_max = credits,
                                                      .send_sge_max = 1,
                                                      .recv_sge_max = 1,
                                                      .inline_max = frame_bytes};
static_assert(capabilities.send_wr_max + capabilities.recv_wr_max == agent::completion_entries);

}  // namespace

control_channel::control_channel(completion_queue_driver& driver, verbs::protection_domain& pd,
                                 mr_allocator& memory, std::size_t message_max_bytes, listener& up)
    : waiter{&on_message},
      home_{driver.home()},
      up_{up},
      memory_{memory.allocate_zeroed((credits + send_buffers) * frame_bytes)},
      buffers_{memory_.slice().standing()},
      qp_{driver, pd, capabilities, message_max_bytes} {
  for (unsigned slot = 0; slot < credits; ++slot) {
    answers_[slot].home = this;
    answers_[slot].slot = slot;
    answers_[slot].on_sent = &on_answer_sent;
  }
}

void control_channel::post_receives() {
  for (unsigned slot = 0; slot < credits; ++slot) qp_.post_recv(buffer(slot));
}

void control_channel::start() noexcept {
  is_running_ = true;
  listen();
  pump();
}

void control_channel::stop() noexcept {
  is_running_ = false;
  for (list* all : {&notices_, &waiting_questions_})
    while (!all->empty()) all->pop_front();
}

std::coroutine_handle<> control_channel::on_message(waiter& self) noexcept {
  auto& channel = static_cast<control_channel&>(self);
  if (channel.take_message()) channel.listen();
  return std::noop_coroutine();
}

void control_channel::listen() noexcept {
  do {
    if (!is_running_) return;
    next_.emplace(qp_.next_message());
    if (!next_->start(*this, {&home_, {}})) return;
  } while (take_message());
}

/// False: there will be no more.
bool control_channel::take_message() noexcept {
  result<message> arrived = next_->take_result();
  next_.reset();
  if (!is_running_ || !arrived.has_value()) return false;
  try {
    const const_local_mr_slice payload = arrived->payload();
    const std::ptrdiff_t offset = payload.bytes().data() - memory_.bytes().data();
    const auto slot = unsigned(offset / std::ptrdiff_t{frame_bytes});
    const frame f = agent_protocol::decode(payload.bytes());
    take_credits(f);
    if (f.kind == agent_protocol::kind::credit)
      release(slot);
    else
      up_.on_frame(f, slot);
    pump();
  } catch (const error& e) {
    is_running_ = false;
    up_.on_bad_frame(e.failure());
  }
  return is_running_;
}

void control_channel::take_credits(const frame& f) {
  if (f.taken - taken_by_peer_ > under_way())
    throw error{{.code = errc::bad_frame, .call = "agent", .detail = "took what was not sent"}};
  taken_by_peer_ = f.taken;
  // What it took is acknowledged by its device before. Else what we send would pile up here.
  if (qp_.sends().in_flight() > under_way() + credits)
    throw error{{.code = errc::bad_frame, .call = "agent", .detail = "took what did not arrive"}};
  if (!agent_protocol::is_answer(f.kind)) return;
  if (questions_ == 0)
    throw error{{.code = errc::bad_frame, .call = "agent", .detail = "answers what was not asked"}};
  --questions_;
}

void control_channel::send(outgoing& o) noexcept {
  (agent_protocol::is_question(o.frame.kind) ? waiting_questions_ : notices_).push_back(o);
  pump();
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
  try {
    qp_.post_recv(buffer(slot));
    ++taken_;
  } catch (const error&) {
    // The queue pair has failed, which ends the connection.
  }
}

/// The last credit is for telling credits: else two sides that have none left would both wait.
void control_channel::pump() noexcept {
  while (is_running_ && under_way() < credits - 1) {
    const bool asks = notices_.empty();
    if (asks && (waiting_questions_.empty() || questions_ == agent_protocol::questions_max)) break;
    outgoing& next = (asks ? waiting_questions_ : notices_).pop_front();
    if (asks) ++questions_;
    post(next.frame);
    if (next.on_sent != nullptr) next.on_sent(next);
  }
  if (!is_running_ || taken_ - told_ < credits / 2 || under_way() == credits) return;
  frame f{.kind = agent_protocol::kind::credit};
  post(f);
}

void control_channel::post(frame& f) noexcept {
  f.taken = told_ = taken_;
  // When a buffer's turn comes again, the peer has taken what it held.
  const local_mr_slice from = buffer(credits + sent_ % send_buffers);
  agent_protocol::encode(f, from.bytes().first<frame_bytes>());
  static_cast<void>(qp_.post(cordma::send(from)));
  ++sent_;
}

}  // namespace cordma
