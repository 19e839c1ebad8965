#include "raw_links.hpp"

#include <support/device.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <optional>
#include <stdexcept>

namespace bench {
namespace {

using namespace cordma;
using support::raw::check;

constexpr unsigned ranks_max = 64;
/// Receives that a peer can use before this rank posts more: more than the segments of two shifts.
constexpr std::uint32_t receives = 512;
constexpr std::uint32_t sends = 64;
constexpr unsigned signal_every = sends / 2;
/// One segment at a time is in flight: more of them, and smaller ones, are up to a third slower.
constexpr std::size_t segment_bytes = std::size_t{1} << 20;
/// Empty polls in a row after which a wait yields. A yield after each takes ten times as long with
/// four ranks a processor, and one after hundreds twice as long.
constexpr unsigned polls_before_yield = 32;
/// How long an adaptive wait polls. A shorter time is over before all ranks of a processor had
/// their turn: then they all sleep, and wake-ups take longest of all.
constexpr std::chrono::microseconds adaptive_polls{500};
/// The wr_id of a signaled segment. Receives have their rank's.
constexpr std::uint64_t segment_id = 1u << 16, message_id = 2u << 16;

/// Bytes that go round a buffer, from `begin` on, in segments.
struct segments {
  std::size_t buffer_bytes, begin, all;
  std::size_t done = 0;

  [[nodiscard]] std::size_t offset() const { return (begin + done) % buffer_bytes; }
  [[nodiscard]] std::size_t next_bytes() const {
    return std::min({segment_bytes, buffer_bytes - offset(), all - done});
  }
  [[nodiscard]] bool has_ended() const { return done == all; }
};

verbs::access writable() { return verbs::access::local_write | verbs::access::remote_write; }

}  // namespace

struct raw_links::meeting_file {
  struct entry {
    std::uint64_t buffer;
    std::uint32_t rkey;
    std::array<std::uint32_t, ranks_max> queue_pairs;
  };
  std::array<entry, ranks_max> ranks;
  std::atomic<unsigned> ready, connected;
};

waiting waiting_by(std::string_view name) {
  if (name == "busy") return waiting::busy;
  if (name == "yielding") return waiting::yielding;
  if (name == "event") return waiting::event;
  if (name == "adaptive") return waiting::adaptive;
  throw std::runtime_error{"no such waiting: " + std::string{name}};
}

raw_links::raw_links(const rank_of& mine, const std::string& file, waiting how)
    : mine_{mine},
      how_{how},
      ctx_{test::device_name()},
      port_{ctx_.active_port()},
      pd_{ctx_},
      buffer_(collective_bytes_max, std::byte{1}),
      region_{pd_, buffer_.data(), buffer_.size(), writable()},
      channel_{std::make_unique<verbs::completion_channel>(ctx_)},
      cq_{ctx_, mine.size * (receives + sends), channel_.get()} {
  if (mine.size > ranks_max) throw std::runtime_error{"so many ranks have no room in the file"};
  for (unsigned peer = 0; peer < mine.size; ++peer) {
    links_.push_back(
        {verbs::queue_pair{pd_, cq_, cq_, {.send_wr_max = sends, .recv_wr_max = receives}}, {}});
  }
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(meeting_file)) != 0) check(errno, "open");
  void* const shared =
      ::mmap(nullptr, sizeof(meeting_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (shared == MAP_FAILED) check(errno, "mmap");
  meet(*static_cast<meeting_file*>(shared));
  ::munmap(shared, sizeof(meeting_file));
}

void raw_links::meet(meeting_file& all) {
  const auto await_all = [this](std::atomic<unsigned>& count) {
    ++count;
    while (count < mine_.size) ::sched_yield();
  };
  meeting_file::entry& here = all.ranks[mine_.rank];
  here.buffer = reinterpret_cast<std::uint64_t>(buffer_.data());
  here.rkey = region_.rkey();
  for (unsigned peer = 0; peer < mine_.size; ++peer) here.queue_pairs[peer] = links_[peer].qp.num();
  await_all(all.ready);
  for (unsigned peer = 0; peer < mine_.size; ++peer) {
    if (peer == mine_.rank) continue;
    const meeting_file::entry& there = all.ranks[peer];
    links_[peer].buffer = {there.buffer, there.rkey};
    constexpr std::uint8_t patient = 28;
    support::raw::connect(ctx_, port_, links_[peer].qp, there.queue_pairs[mine_.rank], patient);
    for (std::uint32_t i = 0; i < receives; ++i) post_receive(peer);
  }
  await_all(all.connected);
}

void raw_links::post_receive(unsigned peer) {
  support::raw::post(links_[peer].qp, support::raw::receive{{}, peer});
}

void raw_links::write(link& to, std::size_t at, std::size_t bytes, std::uint64_t id,
                      bool is_signaled) {
  support::raw::request what{IBV_WR_RDMA_WRITE_WITH_IMM,
                             support::raw::piece(buffer_.data() + at, bytes, region_.lkey()),
                             {to.buffer.address + at, to.buffer.rkey}};
  what.wr.wr_id = id;
  if (bytes <= to.qp.capabilities().inline_max) what.wr.send_flags |= IBV_SEND_INLINE;
  if (!is_signaled) what.wr.send_flags &= ~unsigned{IBV_SEND_SIGNALED};
  support::raw::post(to.qp, what);
}

void raw_links::send(unsigned peer, std::size_t bytes) {
  link& to = links_[peer];
  const bool is_signaled = ++to.unsignaled == signal_every;
  if (is_signaled) to.unsignaled = 0;
  write(to, mine_.rank * message_bytes_max, bytes, message_id, is_signaled);
}

void raw_links::await(unsigned peer) {
  while (links_[peer].arrived == 0) reap();
  --links_[peer].arrived;
}

void raw_links::shift(std::size_t buffer_bytes, std::size_t part_bytes, std::size_t to_send,
                      std::size_t to_receive) {
  const unsigned to = (mine_.rank + mine_.size - 1) % mine_.size;
  const unsigned from = (mine_.rank + 1) % mine_.size;
  segments sent{buffer_bytes, mine_.rank * part_bytes, to_send};
  segments received{buffer_bytes, from * part_bytes, to_receive};
  for (;; reap()) {
    for (; !received.has_ended() && links_[from].arrived > 0; --links_[from].arrived)
      received.done += received.next_bytes();
    if (is_segment_in_flight_) continue;
    if (!sent.has_ended()) {
      const std::size_t bytes = sent.next_bytes();
      is_segment_in_flight_ = true;
      write(links_[to], sent.offset(), bytes, segment_id, true);
      sent.done += bytes;
    } else if (received.has_ended()) {
      return;
    }
  }
}

std::size_t raw_links::poll() {
  return support::raw::poll(cq_, [this](const ibv_wc& wc) {
    if ((wc.opcode & IBV_WC_RECV) != 0) {
      ++links_[wc.wr_id].arrived;
      post_receive(unsigned(wc.wr_id));
    } else if (wc.wr_id == segment_id) {
      is_segment_in_flight_ = false;
    }
  });
}

void raw_links::block() {
  check(cq_.arm(), "ibv_req_notify_cq");
  if (poll() > 0) return;  // The event of the arming is read the next time.
  pollfd event{channel_->fd(), POLLIN, 0};
  if (::poll(&event, 1, -1) < 0) check(errno, "poll");
  while (channel_->get_event() != nullptr) cq_.ack_events();
}

void raw_links::reap() {
  using clock = std::chrono::steady_clock;
  std::optional<clock::time_point> until;
  for (unsigned i = 1; poll() == 0; ++i) {
    if (how_ == waiting::event) return block();
    if (how_ == waiting::busy || i % polls_before_yield != 0) continue;
    ::sched_yield();
    if (how_ == waiting::yielding) continue;
    if (!until) until = clock::now() + adaptive_polls;
    if (clock::now() >= *until) return block();
  }
}

}  // namespace bench
