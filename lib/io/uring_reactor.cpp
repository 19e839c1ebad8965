#include "uring_reactor.hpp"

#include "base/descriptors.hpp"
#include "uring_diagnosis.hpp"

#include <cordma/detail/base/assert.hpp>

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

namespace cordma {
namespace {

// The best flags come first. DEFER_TASKRUN runs the kernel's part of a completion when the reactor
// enters, on the executor's thread. TASKRUN_FLAG shows when there is one, so that a busy loop need
// not enter to find out.
constexpr unsigned setup_flags[] = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,  // 6.1
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,                                // 5.19
    0,                                                                                    // 5.13
};

unique_fd make_eventfd() {
  unique_fd fd{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  if (!fd.is_open())
    throw error{errno_failure(errno, "eventfd", {}, way_out_of_descriptors(errno))};
  return fd;
}

/// Requests that were not submitted stay in the queue, and go with the next submission.
void check_entry(int outcome) noexcept {
  CORDMA_ASSERT(outcome != -EBADR, "io_uring lost a completion: the kernel was out of memory");
  // EAGAIN and EBUSY: the kernel is short of memory, or needs its completions reaped first.
  CORDMA_ASSERT(outcome >= 0 || outcome == -EINTR || outcome == -EAGAIN || outcome == -EBUSY,
                "io_uring_enter failed: was the executor run, or a watch destroyed, on another "
                "thread?");
}

}  // namespace

uring_reactor::uring_reactor(unsigned entries)
    : wake_fd_{make_eventfd()}, wake_watch_{wake_fd_.get(), fd_events::readable, &on_wake} {
  int outcome = -EINVAL;
  for (const unsigned flags : setup_flags) {
    io_uring_params params{};
    // The ring starts disabled, because the thread that enables it becomes its issuer: an
    // executor may be made on one thread and run on another.
    params.flags = flags | IORING_SETUP_R_DISABLED | IORING_SETUP_CLAMP;
    outcome = io_uring_queue_init_params(entries, &ring_, &params);
    // RSRC_TAGS came with the same kernel as the multishot poll, which has no flag of its own.
    if (outcome >= 0 && (params.features & IORING_FEAT_RSRC_TAGS) == 0) {
      io_uring_queue_exit(&ring_);
      outcome = -EINVAL;
    }
    if (outcome != -EINVAL) break;
  }
  if (outcome < 0) throw error{diagnose_uring(-outcome, read_surroundings(), entries)};
}

uring_reactor::~uring_reactor() {
  for (slot& s : slots_) {
    if (s.watch != nullptr) s.watch->abandoned();
  }
  io_uring_queue_exit(&ring_);
}

void uring_reactor::enable() {
  // liburing 2.3 declares io_uring_enable_rings and does not export it.
  const int outcome =
      io_uring_register(unsigned(ring_.ring_fd), IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
  if (outcome < 0) throw error{errno_failure(-outcome, "io_uring_register")};
  if (!wake_watch_.is_watching()) wake_watch_.watch(*this, watch_kind::edges);
}

void uring_reactor::watch(fd_watch& w) {
  if (unused_ == nobody) {
    slots_.emplace_back();
    release(std::uint32_t(slots_.size() - 1));
  }
  const std::uint32_t index = unused_;
  unused_ = slots_[index].next;
  slots_[index].watch = &w;
  w.key = index;
  change(index, state::to_arm);
}

void uring_reactor::unwatch(fd_watch& w) noexcept {
  slot& s = slots_[w.key];
  s.watch = nullptr;
  if (s.now != state::armed) return;  // A slot in `to_arm` is handled when its change is submitted.
  change(w.key, state::to_cancel);
  // The cancel goes now, not with the next batch: until then the kernel holds the file, and a close
  // would not close it. The peer would get no FIN, and a port would stay bound.
  if (!tell_kernel()) return;
  enter();
  // One kernel entry processes only some events (20 on Linux 6.18), oldest first, and others may
  // precede this slot's. No slot has more than one event.
  for (std::size_t left = slots_.size(); left > 0 && is_kernel_waiting(); --left) enter();
}

void uring_reactor::change(std::uint32_t index, state to) noexcept {
  slots_[index].now = to;
  slots_[index].next = std::exchange(changed_, index);
}

void uring_reactor::release(std::uint32_t index) noexcept {
  slot& s = slots_[index];
  s.watch = nullptr;
  ++s.generation;
  s.now = state::unused;
  s.next = std::exchange(unused_, index);
}

io_uring_sqe* uring_reactor::next_sqe() noexcept {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  if (sqe != nullptr) return sqe;
  enters_.add();
  check_entry(io_uring_submit(&ring_));
  return io_uring_get_sqe(&ring_);
}

/// Submits all changes. Returns false when the kernel took too few, and some are left for later.
bool uring_reactor::tell_kernel() noexcept {
  while (changed_ != nobody) {
    const std::uint32_t index = changed_;
    const std::uint32_t rest = slots_[index].next;
    if (!tell_kernel(index)) return false;
    changed_ = rest;
  }
  return !alarm_changed_ || tell_alarm();
}

bool uring_reactor::tell_kernel(std::uint32_t index) noexcept {
  slot& s = slots_[index];
  if (s.now == state::ended || (s.now == state::to_arm && s.watch == nullptr)) {
    release(index);
    return true;
  }
  io_uring_sqe* const sqe = next_sqe();
  if (sqe == nullptr) return false;
  if (s.now == state::to_cancel) {
    // POLL_REMOVE would not remove a poll that has an event pending (EALREADY).
    io_uring_prep_cancel64(sqe, name_of(index), 0);
    io_uring_sqe_set_data64(sqe, name_of(index) | of_cancel);
    s.now = state::cancelling;
    return true;
  }
  if (s.watch->kind() == watch_kind::edges) {
    io_uring_prep_poll_multishot(sqe, s.watch->fd(), unsigned(s.watch->events()));
  } else {
    io_uring_prep_poll_add(sqe, s.watch->fd(), unsigned(s.watch->events()));
  }
  io_uring_sqe_set_data64(sqe, name_of(index));
  s.now = state::armed;
  return true;
}

bool uring_reactor::tell_alarm() noexcept {
  io_uring_sqe* const sqe = next_sqe();
  if (sqe == nullptr) return false;
  if (alarm_armed_) {
    io_uring_prep_timeout_update(sqe, &alarm_at_, alarm, IORING_TIMEOUT_ABS);
    io_uring_sqe_set_data64(sqe, alarm_update);
  } else {
    io_uring_prep_timeout(sqe, &alarm_at_, 0, IORING_TIMEOUT_ABS);
    io_uring_sqe_set_data64(sqe, alarm);
  }
  alarm_armed_ = true;
  alarm_changed_ = false;
  return true;
}

void uring_reactor::set_alarm(time_point at) noexcept {
  // The kernel refuses times before its epoch.
  const auto since_boot = std::max(at.time_since_epoch(), duration::zero());
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
  alarm_at_.tv_sec = whole.count();
  alarm_at_.tv_nsec = std::chrono::nanoseconds{since_boot - whole}.count();
  alarm_changed_ = true;
}

bool uring_reactor::is_kernel_waiting() const noexcept {
  return (IO_URING_READ_ONCE(*ring_.sq.kflags) & IORING_SQ_TASKRUN) != 0;
}

void uring_reactor::enter() noexcept {
  enters_.add();
  check_entry(io_uring_submit_and_get_events(&ring_));
}

void uring_reactor::poll() noexcept {
  // Changes that could not be submitted now go with the next call.
  if (changed_ != nobody || alarm_changed_) static_cast<void>(tell_kernel());
  const unsigned flags = IO_URING_READ_ONCE(*ring_.sq.kflags);
  if (io_uring_sq_ready(&ring_) > 0 || (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0) {
    enter();
  }
  reap();
}

void uring_reactor::wait() noexcept {
  if (!tell_kernel()) return poll();
  enters_.add();
  check_entry(io_uring_submit_and_wait(&ring_, 1));
  reap();
}

void uring_reactor::reap() noexcept {
  for (unsigned left = io_uring_cq_ready(&ring_); left > 0; --left) {
    io_uring_cqe* cqe = nullptr;
    if (io_uring_peek_cqe(&ring_, &cqe) != 0) return;
    const std::uint64_t name = io_uring_cqe_get_data64(cqe);
    const int outcome = cqe->res;
    const bool more = (cqe->flags & IORING_CQE_F_MORE) != 0;
    io_uring_cqe_seen(&ring_, cqe);
    dispatch(name, outcome, more);
  }
}

void uring_reactor::dispatch(std::uint64_t name, int outcome, bool more) noexcept {
  if (name == alarm) {
    alarm_armed_ = false;
    alarm_fired_ = true;
  } else if (name == alarm_update) {
    // The alarm fired at this moment, or stays as it was: the executor checks the timers and sets
    // it again.
    if (outcome < 0) alarm_fired_ = true;
  } else if ((name & of_cancel) != 0) {
    dispatch_cancel(name & ~std::uint64_t{of_cancel}, outcome);
  } else {
    dispatch_poll(name, outcome, more);
  }
}

void uring_reactor::dispatch_cancel(std::uint64_t name, int outcome) noexcept {
  const auto index = std::uint32_t(name);
  // ENOENT: the slot's last completion is there, or on its way.
  if (name != name_of(index) || outcome == 0 || outcome == -ENOENT) return;
  if (slots_[index].now == state::cancelling) change(index, state::to_cancel);
}

void uring_reactor::dispatch_poll(std::uint64_t name, int outcome, bool more) noexcept {
  const auto index = std::uint32_t(name);
  slot& s = slots_[index];
  if (name != name_of(index)) return;
  fd_watch* const w = s.watch;
  if (w == nullptr) {
    if (more) return;
    if (s.now == state::cancelling) return release(index);
    s.now = state::ended;  // The slot's link in the list of changes goes with it.
    return;
  }
  if (w->kind() == watch_kind::once) {
    release(index);
  } else if (outcome == -ENOMEM || (outcome >= 0 && !more)) {
    change(index, state::to_arm);
  } else if (outcome < 0) {
    release(index);
    w->abandoned();
  }
  w->fired();
}

/// Does nothing: the wake-up itself is the effect. Nobody reads the count: each write is an edge of
/// its own. One write per nanosecond reaches the limit in five hundred years (eventfd(2)).
void uring_reactor::on_wake(fd_watch&) noexcept {}

void uring_reactor::wake() noexcept { static_cast<void>(::eventfd_write(wake_fd_.get(), 1)); }

}  // namespace cordma
