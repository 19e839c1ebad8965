#include "victim_program.hpp"

#include "queue/send_queue.hpp"
#include "request/queue_pair.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace cordma::fuzz {

using namespace std::chrono_literals;
using verbs::access;

void victim_program::act(script& in) {
  collect();
  const std::uint8_t what = in.byte();
  borrowing& b = borrowings_[what / 16 % borrowings_.size()];
  lent& l = lents_[what / 16 % lents_.size()];
  switch (what % 12) {
    case 0:
    case 1: return ask(b, in);
    case 2:
      if (b.asked) b.asked->request_stop();
      if (!b.renewal) b.memory = {};
      return;
    case 3:
      if (b.memory && !b.renewal) b.renewal.emplace(world_.executor, b.memory.renew(500ms));
      return;
    case 4:
      if (b.memory && !b.renewal && !handing_)
        handing_.emplace(world_.executor, victim_.self().borrows.hand_over(std::move(b.memory)));
      return;
    case 5:
      if (!b.asked && !b.memory && !b.renewal)
        b.asked.emplace(world_.executor, victim_.self().borrows.receive());
      return;
    case 6: return use(b);
    case 7:
    case 8: return lend(l, in);
    case 9:
      if (l.loan && !l.end) l.end.emplace(world_.executor, l.loan.revoke());
      return;
    case 10:
      if (l.made) l.made->request_stop();
      if (l.end)
        l.end->request_stop();
      else
        l.loan = {};
      return;
    case 11:
      if (!received_) received_.emplace(world_.executor, victim_.self().lends.receive());
      if (b.renewal && in.byte() % 2 == 0) b.renewal->request_stop();
      return;
  }
}

void victim_program::collect() {
  for (borrowing& b : borrowings_) {
    if (b.asked && b.asked->has_ended()) {
      if (auto outcome = (**b.asked).take_result(); outcome.has_value())
        b.memory = std::move(outcome).value();
      b.asked.reset();
    }
    if (b.renewal && b.renewal->has_ended()) b.renewal.reset();
  }
  for (lent& l : lents_) {
    if (l.made && l.made->has_ended()) {
      if (auto outcome = (**l.made).take_result(); outcome.has_value())
        l.loan = std::move(outcome).value();
      l.made.reset();
    }
    if (l.end && l.end->has_ended()) {
      if (auto outcome = (**l.end).take_result(); outcome.has_value()) l.loan = {};
      l.end.reset();
    }
  }
  if (handing_ && handing_->has_ended()) handing_.reset();
  if (received_ && received_->has_ended()) received_.reset();
}

void victim_program::stop() {
  for (borrowing& b : borrowings_) {
    if (b.asked) b.asked->request_stop();
    if (b.renewal) b.renewal->request_stop();
  }
  for (lent& l : lents_) {
    if (l.made) l.made->request_stop();
    if (l.end) l.end->request_stop();
  }
  if (handing_) handing_->request_stop();
  if (received_) received_->request_stop();
}

void victim_program::drop() {
  collect();
  must(!waits(), "what was stopped, or lost its connection, has ended");
  for (borrowing& b : borrowings_) b.memory = {};
  for (lent& l : lents_) l.loan = {};
}

bool victim_program::waits() const {
  return handing_ || received_ ||
         std::ranges::any_of(borrowings_, [](auto& b) { return b.asked || b.renewal; }) ||
         std::ranges::any_of(lents_, [](auto& l) { return l.made || l.end; });
}

void victim_program::take_received() {
  for (;;) {
    collect();
    if (!received_) received_.emplace(world_.executor, victim_.self().lends.receive());
    if (!received_->has_ended()) return;
    if (victim_.is_cut_off() && !(**received_).take_result().has_value()) return received_.reset();
    received_.reset();
  }
}

void victim_program::ask(borrowing& b, script& in) {
  if (b.asked || b.memory || b.renewal) return;
  constexpr std::array<std::size_t, 4> sizes{64, 1, 4096, 100};
  b.asked.emplace(world_.executor, victim_.self().borrows.request(in.of(sizes), {.lease = 300ms}));
}

/// A request that stays a while, so that its return has something to wait for.
void victim_program::use(borrowing& b) {
  if (!b.memory || victim_.data().sends().in_flight() > 8) return;
  static_cast<void>(victim_.data().post(
      cordma::write(source_.slice().first(std::min<std::size_t>(64, b.memory.size_bytes())),
                    b.memory.first(std::min<std::size_t>(64, b.memory.size_bytes())))));
}

void victim_program::lend(lent& l, script& in) {
  if (l.made || l.loan || l.end) return;
  constexpr std::array<std::size_t, 4> sizes{64, 1, 4096, 100};
  constexpr std::array<access, 4> accesses{lending_policy::lendable_access, access::remote_read,
                                           access::remote_write, access::remote_read};
  l.made.emplace(world_.executor,
                 victim_.self().lends.lend(world_.memory.allocate_zeroed(in.of(sizes)),
                                           {.access = in.of(accesses), .lease = 400ms}));
}

}  // namespace cordma::fuzz
