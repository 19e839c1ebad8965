#include <cordma/detail/messages/pending_fill.hpp>

#include "memory/chosen_memory.hpp"
#include "rendezvous.hpp"
#include "stream_channel.hpp"

#include <utility>

namespace cordma::detail {

pending_fill::pending_fill(counted_ref<stream_channel> channel, stop_token stop) noexcept
    : waiter{&on_served},
      channel_{std::move(channel)},
      stop_{stop},
      changed_{channel_->executor()},
      permit_{channel_->messages().acquire()} {
  // Without a scheduler the semaphore calls `on_served` in the reap.
  if (permit_->start(*this, {})) {
    is_served_ = true;
    return;
  }
  channel_->fills_.push_back(*this);
  channel_->serve_large();
}

pending_fill::~pending_fill() {
  list_hook<pending_fill>::unlink();
  permit_.reset();  // A message that is here goes to the next task.
  if (large_ != nullptr) channel_->offer_again(*large_);
  channel_->serve_large();
}

std::coroutine_handle<> pending_fill::on_served(waiter& self) noexcept {
  auto& fill = static_cast<pending_fill&>(self);
  fill.list_hook<pending_fill>::unlink();
  fill.is_served_ = true;
  fill.changed_.set();
  return std::noop_coroutine();
}

bool pending_fill::is_known() {
  if (stop_.stop_requested()) throw cancelled{};
  if (large_ != nullptr) return true;
  if (is_served_ && permit_->failed()) throw error{*channel_->failed()};
  return is_served_;
}

message_arrival pending_fill::next() noexcept {
  const arrived_message& a = large_ != nullptr ? large_->slot : channel_->inbox().front();
  is_whole_ = large_ == nullptr;
  next_ = {.size_bytes = is_whole_ ? a.bytes.size() : large_->length(),
           .immediate = a.immediate(),
           .is_large = !is_whole_ || a.large != nullptr};
  return next_;
}

void pending_fill::choose(const local_mr_slice& chosen) {
  part_ = part_to_fill(chosen, next_.size_bytes, channel_->pd_, "receive_into");
  if (is_whole_ || large_ == nullptr) return;
  channel_->borrow(*large_);
  large_->into = part_;
  is_reading_ = true;
  channel_->read(*large_);
}

bool pending_fill::take() {
  if (stop_.stop_requested()) throw cancelled{};
  if (is_whole_) {
    take_whole();
    return true;
  }
  if (failure_) throw error{channel_->failed() ? *channel_->failed() : *failure_};
  // The message may have been withdrawn, and another be offered in its place.
  if (large_ == nullptr || !large_->is_read()) return false;
  take_large();
  return true;
}

void pending_fill::take_whole() {
  detail::copy_into(part_, channel_->inbox().front().bytes);
  static_cast<void>(permit_->take_result());
  static_cast<void>(channel_->deliver());
}

void pending_fill::take_large() noexcept {
  message_channel& channel = *channel_.get();
  large_receive& l = *std::exchange(large_, nullptr);
  l.fill = nullptr;
  permit_.reset();  // The answer may lead to an offer for the next task.
  ++channel.counters_.received;
  ++channel.counters_.large_received;
  channel.answer(l, 0);
}

void pending_fill::offer(large_receive& l) noexcept {
  list_hook<pending_fill>::unlink();
  large_ = &l;
  changed_.set();
}

/// Waits again, before all others.
void pending_fill::lose() noexcept {
  large_->fill = nullptr;
  large_ = nullptr;
  is_reading_ = false;
  channel_->fills_.push_front(*this);
  changed_.set();
}

void pending_fill::on_read() noexcept {
  is_reading_ = false;
  changed_.set();
}

void pending_fill::on_failed(const failure& why) noexcept {
  failure_ = why;
  on_read();
}

}  // namespace cordma::detail
