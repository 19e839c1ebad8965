#include "link/link.hpp"

#include "link/tcp_listener.hpp"
#include "node/upcalls.hpp"
#include "wire/no_cancellation.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace softverbs {

namespace {

constexpr std::uint32_t index_part = indices_max - 1;

constexpr bool is_request(frame_kind kind) {
  return kind >= frame_kind::send && kind <= frame_kind::atomic_write;
}
constexpr bool is_answer(frame_kind kind) {
  return kind >= frame_kind::ack && kind <= frame_kind::atomic_response;
}

}  // namespace

bool operator==(const node_address& a, const node_address& b) noexcept {
  return a.slot == b.slot && std::memcmp(&a.host, &b.host, sizeof a.host) == 0;
}

// ---- sending

link::frame_room link::reserve(const frame_header& header, std::uint32_t waiter) noexcept {
  tx_.lock();
  if (!up()) {
    tx_.unlock();
    return {sent::down, nullptr};
  }
  reserved_bytes_ = frame_bytes(header.payload_bytes);
  std::byte* to = nullptr;
  ring_answer answer = out_.reserve(reserved_bytes_, to);
  if (answer == ring_answer::no) {
    waiters_.insert(waiter & index_part);
    stalled_.store(true);
    // Request a doorbell first, then try again: the consumer frees space first, then checks for
    // requests. A poller needs no request, and the engine that takes over from it reads `stalled_`.
    if (!protocol_.polled().load() && !is_tcp()) out_.want_space(true);
    answer = out_.reserve(reserved_bytes_, to);
  }
  if (answer == ring_answer::yes) {
    std::memcpy(to, &header, sizeof header);
    return {sent::yes, to + sizeof header};
  }
  if (answer == ring_answer::broken) fail();
  tx_.unlock();
  return {answer == ring_answer::broken ? sent::down : sent::full, nullptr};
}

void link::commit() noexcept {
  if (network_ != nullptr) [[unlikely]] {
    network_->on_sent(*this, out_.hold(reserved_bytes_));
    return tx_.unlock();
  }
  out_.publish(reserved_bytes_);
  if (is_tcp())
    flush_to_socket();
  else if (out_.claim_doorbell())
    ring_doorbell();
  tx_.unlock();
}

// ---- simulated links

void link::arrive(bool is_lost) noexcept {
  if (!is_lost) heard_at_ = clock::now();
  in_.show_next(is_lost);
}

const frame_header& link::next_to_arrive() const noexcept {
  const ring_view ring = rings_->in(opened_);
  const std::uint64_t shown = ring.control->tail.load();
  return *reinterpret_cast<const frame_header*>(ring.data + shown % ring_bytes);
}

void link::take_datagram(node& local_node, const frame_header& header,
                         const std::byte* payload) noexcept {
  const std::lock_guard rx{rx_};
  if (up()) static_cast<void>(on_request(local_node, *this, header, payload));
}

void link::take_next(node& local_node) noexcept {
  {
    const std::lock_guard rx{rx_};
    if (!up() || !in_.has_frames()) return;
    link* const answers = answers_.load();
    if (answers == nullptr || !answers->take_answer_ahead(local_node)) {
      const frame_fate fate = take_frame(local_node);
      if (fate == frame_fate::broken) return fail();
      lacks_room_ = fate == frame_fate::waits;
      if (!due_.empty()) quantum_ended_.store(true);
      ring_doorbell();
    }
  }
  if (has_more()) protocol_.notify();
}

/// Takes the next answer, unless it is data of a long READ. False: there is none.
bool link::take_answer_ahead(node& local_node) noexcept {
  const std::lock_guard rx{rx_};
  if (!up() || !in_.has_frames() || long_read_is_next()) return false;
  if (take_frame(local_node) != frame_fate::taken)
    fail();
  else
    ring_doorbell();
  return true;
}

void link::answer_next(node& local_node) noexcept {
  {
    const std::lock_guard rx{rx_};
    if (!up()) return;
    answer(local_node, 1);
  }
  if (has_more()) protocol_.notify();
}

// ---- the room of a link

void link::cancel() noexcept { tx_.unlock(); }

bool link::take_waiters(index_set& waiters) noexcept {
  if (!stalled_.load() || !out_.has_space()) return false;
  const std::lock_guard tx{tx_};
  if (!stalled_.load(std::memory_order_relaxed) || !out_.has_space()) return false;
  waiters = waiters_;
  waiters_.clear();
  stalled_.store(false);
  return true;
}

// ---- receiving

bool link::has_more() const noexcept {
  return in_.has_frames() || quantum_ended_.load() ||
         (answers_stalled_.load() && out_.has_space()) || (unread_.load() && up());
}

bool link::has_work() noexcept {
  if (has_more()) return true;
  if (!is_tcp() || !up()) return false;
  const std::uint32_t polls = tcp_polls_.load(std::memory_order_relaxed) + 1;
  tcp_polls_.store(polls, std::memory_order_relaxed);
  return polls % tcp_poll_interval == 0;
}

/// Checks for more work after the lock is released: a thread that found the lock taken has left its
/// work to the holder.
bool link::serve(node& local_node, bool wait) noexcept {
  bool did = false;
  {
    std::unique_lock rx{rx_, std::defer_lock};
    if (wait)
      rx.lock();
    else if (!rx.try_lock())
      return false;
    if (!up()) return false;
    did = serve_locked(local_node);
  }
  if (has_more()) protocol_.notify();
  return did;
}

bool link::serve_locked(node& local_node) noexcept {
  if (is_tcp()) fill_from_socket();
  bool did = drain(local_node);
  did = answer(local_node) || did;
  if (ended_ && !in_.has_frames()) fail();
  return did;
}

/// Takes a batch of frames. On a wire, the answer to a request arrives before whatever its
/// responder sends later, and programs rely on that order. All answers of the peer that have come
/// are therefore taken before its requests.
bool link::drain(node& local_node) noexcept {
  if (in_.seen_all() && in_.refresh() == ring_answer::broken) fail();
  if (link* answers = answers_.load(); answers != nullptr && !in_.seen_all())
    answers->take_answers(local_node);
  const std::uint64_t begin = in_.popped();
  const auto taken = [&] { return in_.popped() - begin; };
  for (std::size_t frames = 0; frames < batch_frames_max && taken() < batch_bytes_max; ++frames) {
    if (in_.seen_all()) break;
    const frame_fate fate = take_frame(local_node);
    if (fate == frame_fate::waits) break;
    if (fate == frame_fate::taken) continue;
    fail();
    return true;
  }
  if (taken() != 0 && (in_.claim_space_doorbell() || network_ != nullptr) && !is_tcp())
    ring_doorbell();
  return taken() != 0;
}

/// Takes one frame. `broken`: the frame is invalid. `waits`: the frame needs space for an answer;
/// the other direction makes that space without taking requests.
link::frame_fate link::take_frame(node& local_node) noexcept {
  frame_header header;
  const std::byte* payload = nullptr;
  if (in_.peek(header, payload) != ring_answer::yes) return frame_fate::broken;
  if (opened_) {
    if (!is_answer(header.kind) || !on_answer(local_node, *this, header, payload))
      return frame_fate::broken;
  } else {
    const bool is_lost = header.kind == frame_kind::lost && network_ != nullptr;
    if (!is_lost && !is_request(header.kind)) return frame_fate::broken;
    if (!is_lost && !on_request(local_node, *this, header, payload)) return frame_fate::waits;
  }
  in_.pop();
  return frame_fate::taken;
}

/// Takes all answers except the data of a long READ and what follows them. A wire, too, carries
/// requests of the other direction while such data streams.
void link::take_answers(node& local_node) noexcept {
  if (!is_tcp() && !in_.has_frames()) return;
  {
    const std::lock_guard rx{rx_};
    if (!up()) return;
    take_short_answers(local_node);
  }
  if (has_more()) protocol_.notify();
}

void link::take_short_answers(node& local_node) noexcept {
  if (is_tcp()) fill_from_socket();
  // Include frames that came after the tail was last loaded.
  if (in_.refresh() == ring_answer::broken) return fail();
  while (!in_.seen_all() && !long_read_is_next())
    if (take_frame(local_node) != frame_fate::taken) return fail();
  if ((in_.claim_space_doorbell() || network_ != nullptr) && !is_tcp()) ring_doorbell();
}

bool link::long_read_is_next() noexcept {
  frame_header header;
  const std::byte* payload = nullptr;
  return in_.peek(header, payload) == ring_answer::yes &&
         header.kind == frame_kind::read_response && header.message_bytes > segment_bytes_max;
}

void link::answer_later(std::uint32_t local_qpn) noexcept { due_.insert(local_qpn & index_part); }

/// Sends the answers that at most that many QPs owe.
bool link::answer(node& local_node, std::uint32_t most) noexcept {
  bool did = false;
  for (; !due_.empty(); --most) {
    if (most == 0) {
      quantum_ended_.store(true);
      return did;
    }
    const std::uint32_t index = due_.next_around(due_cursor_);
    due_.erase(index);
    const std::uint32_t qpn = std::uint32_t{own_slot_} * indices_max + index;
    const std::uint64_t before = out_.published();
    if (!send_answers(local_node, *this, qpn)) {
      // If answers were sent, the quantum ended: there is room, so no doorbell will announce more.
      const bool some = out_.published() != before;
      quantum_ended_.store(some);
      did = did || some;
      due_.insert(index);
      // A QP whose quantum ended goes behind all others; a QP without room stays the first.
      due_cursor_ = some ? index + 1 : index;
      answers_stalled_.store(true);
      return did;
    }
    due_cursor_ = index + 1;
    did = true;
  }
  if (answers_stalled_.load(std::memory_order_relaxed)) answers_stalled_.store(false);
  if (quantum_ended_.load(std::memory_order_relaxed)) quantum_ended_.store(false);
  return did;
}

// ---- sockets

void link::fill_from_socket() noexcept {
  const no_cancellation wholly;
  unread_.store(false);
  while (!ended_) {
    const std::span<std::byte> room = from_socket_.room();
    if (room.empty()) {
      unread_.store(true);
      return;
    }
    const ssize_t bytes = ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (bytes <= 0 || !from_socket_.produced(static_cast<std::size_t>(bytes)))
      ended_ = true;
    else if (static_cast<std::size_t>(bytes) < room.size())
      return;
  }
}

void link::flush_to_socket() noexcept {
  const no_cancellation wholly;
  for (std::span<const std::byte> bytes = to_socket_.pending(); !bytes.empty();
       bytes = to_socket_.pending()) {
    const ssize_t done =
        ::send(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) fail();
      return;
    }
    to_socket_.consumed(static_cast<std::size_t>(done));
  }
}

void link::on_writable() noexcept {
  const std::lock_guard tx{tx_};
  if (up()) flush_to_socket();
}

void link::ring_doorbell() noexcept {
  if (network_ != nullptr) return network_->on_peer_work(*this);
  const no_cancellation wholly;
  // A full socket holds enough doorbells; the engine handles a broken one.
  const char bell = 0;
  (void)::send(socket_.get(), &bell, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool link::drain_doorbells() noexcept {
  constexpr int at_once_max = 16;  // Further doorbells keep the socket readable.
  for (int n = 0; n < at_once_max; ++n) {
    char bell = 0;
    const ssize_t bytes = ::recv(socket_.get(), &bell, 1, MSG_DONTWAIT);
    if (bytes == 0) return false;
    if (bytes < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  }
  return true;
}

void link::want_doorbells(bool wanted) noexcept {
  if (current() == state::free || is_tcp()) return;
  in_.want_doorbell(wanted);
  if (!wanted || stalled_.load()) out_.want_space(wanted);
}

// ---- beginning and end

std::chrono::nanoseconds link::silent_for() noexcept {
  using namespace std::chrono;
  const std::lock_guard tx{tx_};
  if (is_simulated()) return clock::now() - std::max(started_, heard_at_);
  if (!up() || !is_tcp()) return {};
  // A socket that never connected has had no acknowledgement since the start.
  return std::min<nanoseconds>(unacknowledged_time(socket_.get()), clock::now() - started_);
}

void link::fail() noexcept {
  state expected = state::up;
  if (!state_.compare_exchange_strong(expected, state::closing)) return;
  if (network_ != nullptr) return network_->on_end(*this);
  ::shutdown(socket_.get(), SHUT_RDWR);  // The engine gets the event and closes the link.
}

/// Under both locks. False: the system lacks memory.
bool link::take_rings(setup& how) noexcept {
  if (how.rings != nullptr) {
    rings_ = std::move(how.rings);
    in_.attach(rings_->in(how.opened));
    out_.attach(rings_->out(how.opened));
    return true;
  }
  unique_fd own_memory;
  if (!how.memory) own_memory.reset(ring_memory::create_file());
  const int file = how.memory ? how.memory.get() : own_memory.get();
  if (file < 0 || !memory_.reserve() || !memory_.map(file, how.opened)) return false;
  in_.attach(memory_.in());
  out_.attach(memory_.out());
  return true;
}

bool link::start(setup& how) noexcept {
  const std::unique_lock rx{rx_, std::try_to_lock};  // A late poller may still hold the lock.
  if (!rx.owns_lock()) return false;
  const std::lock_guard tx{tx_};
  if (!take_rings(how)) return false;
  tcp_ = !how.memory && how.network == nullptr;
  opened_ = how.opened;
  for_member_ = how.for_member;
  own_slot_ = how.own_slot;
  peer_ = how.peer;
  answers_.store(nullptr);
  socket_ = std::move(how.socket);
  network_ = how.network;
  if (is_tcp()) {
    from_socket_.attach(memory_.in());
    to_socket_.attach(memory_.out());
  }
  ended_ = false;
  lacks_room_ = is_deserted_ = false;
  heard_at_ = {};
  unread_.store(is_tcp());
  if (!tcp_) in_.want_doorbell(true);
  started_ = clock::now();
  generation_.fetch_add(1, std::memory_order_release);
  state_.store(state::up, std::memory_order_release);
  if (network_ != nullptr) network_->on_start(*this);
  return true;
}

void link::send_first(const void* line) noexcept {
  const std::lock_guard tx{tx_};
  std::byte* to = nullptr;
  if (out_.reserve(frame_align, to) != ring_answer::yes) return fail();
  std::memcpy(to, line, frame_align);
  out_.publish(frame_align);
  flush_to_socket();
}

void link::stop(step_mutex& directory, index_set& waiters) noexcept {
  const std::lock_guard rx{rx_};
  const std::lock_guard order{directory};
  const std::lock_guard tx{tx_};
  if (up() && is_tcp()) flush_to_socket();
  if (state_.exchange(state::closing) == state::up && network_ != nullptr) network_->on_end(*this);
  socket_.reset();
  if (rings_ != nullptr) {
    rings_->note_end(opened_, out_.published());
    in_.attach(paired_rings::none());
    out_.attach(paired_rings::none());
    rings_.reset();
  }
  memory_.unmap();
  waiters = waiters_;
  waiters_.clear();
  due_.clear();
  answers_stalled_.store(false);
  quantum_ended_.store(false);
  stalled_.store(false);
}

}  // namespace softverbs
