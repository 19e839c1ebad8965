#include "control_bytes.hpp"

#include "base/failures.hpp"
#include "queue/completion_queue_driver.hpp"

#include <algorithm>
#include <utility>

namespace cordma {

using agent_protocol::bytes_frame;
using agent_protocol::payload_of;

control_bytes::control_bytes(control_channel& frames) noexcept
    : byte_channel{frames.qp().driver().executor()},
      waiter{[](waiter& soon) noexcept -> std::coroutine_handle<> {
        static_cast<control_bytes&>(soon).tell_change();
        return std::noop_coroutine();
      }},
      frames_{frames} {
  for (outgoing& o : outgoing_) {
    o.owner = this;
    o.on_sent = [](control_channel::outgoing& sent) noexcept {
      auto& one = static_cast<outgoing&>(sent);
      one.is_free = true;
      control_bytes& owner = *one.owner;
      if (owner.is_sending_) return;  // The writer knows.
      if (std::exchange(owner.ends_later_, false)) owner.end_writing();
      owner.tell_soon();
    };
  }
}

control_bytes::outgoing* control_bytes::free_frame() noexcept {
  const auto found = std::ranges::find_if(outgoing_, &outgoing::is_free);
  return found == outgoing_.end() ? nullptr : &*found;
}

void control_bytes::send(outgoing& o, const frame& f) noexcept {
  o.frame = f;
  o.is_free = false;
  is_sending_ = true;
  frames_.send(o);
  is_sending_ = false;
}

void control_bytes::check_works() const {
  if (!frames_.qp().has_failed()) return;
  throw error{frames_.qp().failure_reason().to_failure(frames_.qp().verbs().num())};
}

std::optional<std::size_t> control_bytes::try_read(std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size() && count_ > 0) {
    arrived& next = arrived_[first_];
    const std::size_t n = std::min(into.size() - done, next.size - read_);
    std::copy_n(next.bytes.begin() + std::ptrdiff_t(read_), n, into.begin() + std::ptrdiff_t(done));
    done += n;
    read_ += n;
    if (read_ < next.size) break;
    frames_.release(next.slot);
    first_ = (first_ + 1) % arrived_.size();
    --count_;
    read_ = 0;
  }
  if (done > 0) frames_.tell_credits();
  if (done > 0 || into.empty()) return done;
  if (std::exchange(next_read_fails_, false)) throw error{*bad_frame_};
  if (has_ended_) return 0;
  check_works();
  return std::nullopt;
}

std::size_t control_bytes::try_write(std::span<const std::byte> from) {
  check_works();
  if (bad_frame_ && !frames_.is_running()) throw error{*bad_frame_};
  std::size_t done = 0;
  while (done < from.size()) {
    outgoing* const o = free_frame();
    if (o == nullptr) break;
    const auto piece =
        from.subspan(done, std::min(from.size() - done, sizeof(agent_protocol::payload)));
    send(*o, bytes_frame(piece));
    done += piece.size();
  }
  return done;
}

void control_bytes::end_writing() noexcept {
  if (has_said_end_ || frames_.qp().has_failed()) return;
  outgoing* const o = free_frame();
  if (o == nullptr) {
    ends_later_ = true;
    return;
  }
  has_said_end_ = true;
  send(*o, agent_protocol::end_frame);
}

void control_bytes::on_frame(const frame& f, unsigned slot) {
  if (has_ended_) detail::throw_failure(errc::bad_frame, "agent", "bytes after their end");
  if (f.status == agent_protocol::end_frame.status) {
    has_ended_ = true;
    frames_.release(slot);
  } else {
    // A frame has a credit, and there are no more credits than places.
    arrived_[(first_ + count_) % arrived_.size()] = {
        .bytes = payload_of(f), .size = std::uint8_t(f.status), .slot = std::uint8_t(slot)};
    ++count_;
  }
  tell_soon();
}

void control_bytes::tell_soon() noexcept {
  if (waiter& soon = *this; !soon.is_linked()) executor().schedule(soon);
}

}  // namespace cordma
