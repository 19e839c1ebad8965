#include "node/node.hpp"

#include "memory/guarded_copy.hpp"
#include "node/fork_mutex.hpp"
#include "node/gid_table.hpp"
#include "node/upcalls.hpp"
#include "queue/completion_queue.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/random.h>

#include <cstring>
#include <new>
#include <system_error>

namespace softverbs {

constinit std::atomic<bool> entry::needs_checks{false};

namespace {

std::mutex process_lock;
node* process_node =
    nullptr;  // Never deleted: objects that outlive the last close refer to the node.

std::uint32_t random_index() noexcept {
#ifdef SOFTVERBS_EXPLORE
  return 2;  // The order in which queue pairs are served must be that of the last run.
#else
  std::uint32_t number = 0;
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
    number = static_cast<std::uint32_t>(clock::now().time_since_epoch().count());
  return number & index_mask;
#endif
}

}  // namespace

// ---- beginning, end, fork

node::node(std::uint32_t first_index, simulated_host* host)
    : simulated_{host}, keys_{key_slots}, kicked_(indices_max), next_index_{first_index} {
  // Numbers 0, 1 and 0xffffff are special; index 0 means `no QP` in the lists of links.
  free_indices_.fill();
  for (const std::uint32_t index : {0u, 1u, index_mask}) free_indices_.erase(index);
}

node::~node() {
  for (const std::atomic<qp_slot*>& chunk : chunks_) delete[] chunk.load();
}

// Registered while the library is loaded, so that a fork beside the first open waits, too. Handlers
// acquire their locks before the fork mutexes, which are leaves: so a fork mutex is made first.
const fork_mutex node::leaf;
const int node::fork_handlers = ::pthread_atfork(&before_fork, &after_fork, &in_child);

node& node::acquire() {
  if (simulated_host* const host = simulated_host::current()) {
    if (host->node_ == nullptr) host->node_ = new node{host->first_index(), host};
    if (host->node_->users_++ == 0) host->node_->start();
    return *host->node_;
  }
  const std::lock_guard lock{process_lock};
  install_fault_guard();  // At each open: the program may have replaced the handler.
  if (process_node == nullptr) {
    if (fork_handlers != 0)
      throw std::system_error{fork_handlers, std::generic_category(), "softverbs: pthread_atfork"};
    process_node = new node{random_index()};
  }
  if (process_node->users_ == 0) process_node->start();
  ++process_node->users_;
  return *process_node;
}

void node::release(node& one) {
  const std::lock_guard lock{process_lock};
  if (--one.users_ == 0 && !one.abandoned()) one.stop();
}

#ifdef SOFTVERBS_EXPLORE
void node::begin_another() noexcept { process_node = nullptr; }
#endif

void node::before_fork() noexcept {
  process_lock.lock();
  if (process_node == nullptr) return;
  process_node->directory_.lock();
  process_node->list_.lock();
}

void node::after_fork() noexcept {
  if (process_node != nullptr) {
    process_node->list_.unlock();
    process_node->directory_.unlock();
  }
  process_lock.unlock();
}

void node::in_child() noexcept {
  if (process_node != nullptr) {
    // The child must not hold the listeners and links open when the parent dies.
    node& old = *process_node;
    old.abandoned_.store(true);
    entry::needs_checks.store(true);
    old.live_count_.store(0);
    for (const auto& one : old.links_)
      if (one) one->abandon();
    old.abandon_services();
    old.listeners_.close();
    old.epoll_.reset();
    old.wake_.reset();
    old.timer_.reset();
    old.lid_claim_.reset();
    old.list_.unlock();
    old.directory_.unlock();
    process_node = nullptr;
  }
  process_lock.unlock();
}

// ---- QP numbers

std::uint32_t node::allocate_qpn() {
  const std::lock_guard lock{numbers_};
  const std::uint32_t index = free_indices_.next_around(next_index_);
  if (index == index_set::none || !make_chunk(index)) return 0;
  free_indices_.erase(index);
  next_index_ = index + 1;  // A number is reused as late as possible.
  return std::uint32_t{slot_} << index_bits | index;
}

void node::free_qpn(std::uint32_t qpn) noexcept {
  wake_at(qpn, clock::time_point::max());
  const std::lock_guard lock{numbers_};
  free_indices_.insert(qpn & index_mask);
}

qp_slot* node::find(std::uint32_t qpn) noexcept {
  if (qpn >> index_bits != slot_) return nullptr;
  const std::uint32_t index = qpn & index_mask;
  qp_slot* chunk = chunks_[index / chunk_slots].load(std::memory_order_acquire);
  return chunk == nullptr ? nullptr : chunk + index % chunk_slots;
}

/// Allocates the slots of a chunk if there are none. Under `numbers_`.
bool node::make_chunk(std::uint32_t index) noexcept {
  std::atomic<qp_slot*>& chunk = chunks_[index / chunk_slots];
  if (chunk.load(std::memory_order_relaxed) != nullptr) return true;
  auto* slots = new (std::nothrow) qp_slot[chunk_slots];
  chunk.store(slots, std::memory_order_release);
  return slots != nullptr;
}

// ---- progress

void node::kick(std::uint32_t qpn) noexcept {
  qp_slot* slot = find(qpn);
  if (slot == nullptr) return;
  {
    const std::lock_guard lock{list_};
    if (slot->kicked) return;
    slot->kicked = true;
    const std::uint32_t count = kicked_count_.load(std::memory_order_relaxed);
    kicked_[(kicked_first_ + count) % indices_max] = static_cast<std::uint16_t>(qpn & index_mask);
    kicked_count_.store(count + 1);
  }
  protocol_.notify();
}

void node::wake_at(std::uint32_t qpn, clock::time_point when) noexcept {
  if (find(qpn) == nullptr) return;
  bool earlier = false;
  {
    const std::lock_guard lock{list_};
    const clock::time_point before = deadlines_.next();
    if (when == clock::time_point::max())
      deadlines_.forget(qpn & index_mask);
    else
      deadlines_.set(qpn & index_mask, when);
    earlier = deadlines_.next() < before;
    next_deadline_.store(deadlines_.next().time_since_epoch().count());
  }
  if (earlier) protocol_.notify();
}

bool node::work(bool wait) noexcept {
  bool did = run_kicked();
  did = run_due() || did;
  const std::uint32_t count = live_count_.load(std::memory_order_acquire);
  for (std::uint32_t n = 0; n < count; ++n)
    did = serve_link(*live_[n].load(std::memory_order_acquire), wait) || did;
  return did;
}

bool node::wake_waiters(link& one) noexcept {
  index_set waiters;
  if (!one.take_waiters(waiters)) return false;
  kick_all(waiters);
  return true;
}

/// Takes what the peer has sent, and sends the answers that are due.
bool node::serve_link(link& one, bool wait) noexcept {
  const bool did = one.stalled() && wake_waiters(one);
  return (one.has_work() && one.serve(*this, wait)) || did;
}

bool node::run_kicked() noexcept {
  // QPs that are kicked meanwhile wait for the next call.
  const std::uint32_t count = kicked_count_.load();
  for (std::uint32_t n = 0; n < count; ++n)
    if (!run_next_kick()) break;
  return count != 0;
}

bool node::run_next_kick() noexcept {
  std::uint32_t qpn = 0;
  {
    const std::lock_guard lock{list_};
    const std::uint32_t left = kicked_count_.load(std::memory_order_relaxed);
    if (left == 0) return false;
    qpn = std::uint32_t{slot_} << index_bits | kicked_[kicked_first_];
    kicked_first_ = (kicked_first_ + 1) % indices_max;
    kicked_count_.store(left - 1);
    find(qpn)->kicked = false;
  }
  run(*this, qpn);
  return true;
}

/// Runs the queue pairs whose deadline has come.
bool node::run_due() noexcept {
  const clock::rep next = next_deadline_.load();
  if (next == clock::time_point::max().time_since_epoch().count()) return false;
  const clock::time_point now = clock::now();
  if (next > now.time_since_epoch().count()) return false;
  bool did = false;
  while (run_next_due(now)) did = true;  // The loop ends, because `now` is constant.
  return did;
}

bool node::run_next_due(clock::time_point now) noexcept {
  std::uint32_t index = 0;
  {
    const std::lock_guard lock{list_};
    index = deadlines_.take_due(now);
    next_deadline_.store(deadlines_.next().time_since_epoch().count());
  }
  if (index == index_set::none) return false;
  run(*this, std::uint32_t{slot_} << index_bits | index);
  return true;
}

void node::on_empty_poll(completion_queue& cq) noexcept {
  if (simulated_ != nullptr) [[unlikely]]
    return;
  protocol_.on_empty_poll(cq.empty_polls, has_work_to_take());
  protocol_.after_empty_poll(cq.empty_polls, work(false));
}

void node::on_arm(completion_queue& cq) noexcept {
  if (simulated_ == nullptr) protocol_.on_arm(cq.empty_polls);
}

}  // namespace softverbs
